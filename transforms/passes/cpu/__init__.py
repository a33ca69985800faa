"""Passes that one device alone asks for: the CPU."""
