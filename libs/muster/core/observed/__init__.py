"""Observed: the version of each object, and the remaining objects and pods of a workload.

Nothing is decided here. Every stage asks ``seen.py`` whether a fact is new; the accountant and the read model ask
``presence.py`` whether a workload still runs.
"""
