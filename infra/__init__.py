"""Running as a service: what a server is told (`wanted`, `apply`), and one to try (`local`)."""
