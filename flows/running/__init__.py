"""How flows run: on a server or on an API of our own, and what they work with besides it."""
