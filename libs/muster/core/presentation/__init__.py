"""Presentation: what users see on the API server of what the log says. Never on the path of a decision."""
