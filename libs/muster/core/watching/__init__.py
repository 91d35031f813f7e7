"""Watching: from objects as the API server sends them to facts, one per real change, from a relist too."""
