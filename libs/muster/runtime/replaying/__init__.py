"""Replaying: decisions made again from a log, states at any position, and a common order for logs of one history."""
