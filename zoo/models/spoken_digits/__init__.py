"""The recogniser of spoken digits: weights, held-out recordings, and the scripts that made them."""
