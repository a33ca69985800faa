"""From a module to an exported program in inference form, with its signature and state."""
