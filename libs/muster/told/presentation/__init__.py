"""Presentation: the objects on the API server that show users the state of the log.

Pure functions from the read model to objects, statuses and Events. The presenter writes them; no decision reads
them.
"""
