"""Who may sign releases: keys, the store's metadata, and what a promotion checks."""
