"""The zoo's entries: a YAML file per family, and our modules that some of them build."""
