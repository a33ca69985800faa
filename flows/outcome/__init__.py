"""How a run went: its rows and events, and the pages where people see them."""
