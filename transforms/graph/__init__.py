"""Edits, checks, interprets and records programs as graphs."""
