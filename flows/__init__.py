"""The flows that arrange the tasks (`convert`, `upkeep`), and what they need.

`connection` says which server is meant; `cli` is the `zoo` command line.
"""
