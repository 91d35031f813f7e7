"""Queueing: the order inside and between queues, and the sorter, which proposes the jobs to try now."""
