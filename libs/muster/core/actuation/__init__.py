"""Actuation: which decisions still have to be carried out on the API server, and the one patch that does it."""
