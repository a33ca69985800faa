"""The catalogue: a static site of all promoted releases, kept in the store beside them."""
