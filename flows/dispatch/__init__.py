"""Who converts the models of a run: this process, or the workers of a Prefect server."""
