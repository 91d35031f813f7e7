"""Replaying: decisions made again from a log, states at any position of it, and one order for logs of one history."""
