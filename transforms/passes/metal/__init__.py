"""Metal-only passes."""
