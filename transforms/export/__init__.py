"""Export of a module to a program in inference form, with its signature and state."""
