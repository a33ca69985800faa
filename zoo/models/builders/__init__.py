"""Models of our own; entries name them as `zoo.models.builders.<file>:<callable>`."""
