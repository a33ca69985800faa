"""The flows that arrange the tasks, and the `zoo` command line."""
