"""Running as a service: what a server is given (`wanted`, `apply`), and one to try (`local`)."""
