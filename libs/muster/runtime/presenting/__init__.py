"""Presenting: objects that show users where their jobs, gangs and queues stand, written to the API server."""
