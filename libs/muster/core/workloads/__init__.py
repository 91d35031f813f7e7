"""Workloads: one shape for all kinds of jobs, read from the objects of each kind.

Nothing is decided here. The watcher reads jobs with the rows of ``registry.py``; the actuator, the read model and the
installed policies use the same rows.
"""
