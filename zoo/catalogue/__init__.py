"""The catalogue: a static site of all promoted releases, stored beside them."""
