"""Placement: the nodes that take the pods of a gang, and the reasons of the nodes that refuse.

Pure functions over the node ledger. The gang admitter decides with ``place.py``; the search for victims places on nodes
without the victims in the same way.
"""
