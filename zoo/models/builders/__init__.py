"""Menagerie's own models; entries name them as `zoo.models.builders.<file>:<callable>`."""
