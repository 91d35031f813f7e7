"""Learned from the log alone, in integers: how long jobs run, and how fast queues move."""
