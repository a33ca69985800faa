"""Operation as a service: configuration of a server (`wanted`, `apply`), a local one (`local`)."""
