"""What a run has to do, decided before any of it is done: which models, where, how many at once."""
