"""Gangs: a workload starts whole or holds nothing.

Stage ``GangAdmitter`` (``admitter.py``) alone admits jobs, places pods, holds places and keeps the places of plans. The
search for victims reads the state for the room on the nodes.
"""
