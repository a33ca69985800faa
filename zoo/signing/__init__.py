"""Signing of releases: keys, the store's metadata, and the checks of a promotion."""
