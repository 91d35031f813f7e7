"""Presenting: objects that show users the status of their jobs, gangs and queues, written to the API server."""
