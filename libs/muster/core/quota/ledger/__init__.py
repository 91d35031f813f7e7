"""The ledger: the charges and claims at each node of a tree, and whether a request fits beside them.

The accountant decides on the ledger; the sorter, the preemptor and the read model fold copies. ``books.py`` changes
with events, ``quotaledger.py`` answers questions.
"""
