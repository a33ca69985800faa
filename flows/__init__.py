"""The flows that run the tasks (`convert`, `upkeep`), and their infrastructure.

`connection` selects the server; `cli` is the `zoo` command line.
"""
