"""Golden cases: the inputs a program is proven on, and what eager PyTorch answers."""
