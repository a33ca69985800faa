"""Golden cases: the inputs a program is proven on, and eager PyTorch's outputs for them."""
