"""Queueing: the order inside and between queues, and the sorter who proposes what should be tried now."""
