"""Placement: the nodes that take the pods of a gang, and the reasons of the nodes that refuse.

Pure functions over the node ledger; the gang admitter decides with ``place.py``, and the search for victims asks the
same questions of nodes from which victims have left.
"""
