"""Presentation: the objects on the API server that show users the state of the log. Never on the path of a decision."""
