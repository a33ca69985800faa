"""The digits classifier's data and weights, and the script that made them."""
