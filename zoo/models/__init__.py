"""The zoo's entries: a YAML file a family, and the modules of ours that some of them build."""
