"""Passes that one device alone asks for: Apple GPUs."""
