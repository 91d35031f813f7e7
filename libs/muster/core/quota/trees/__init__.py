"""Trees: every quota API compiled to trees of one model, with the rules of each tree.

A source for each API (``treesource.py``, ``kaisource.py``) keeps the observed objects; ``forest.py`` compares the
compiled trees with the trees in force. The accountant decides which tree is accepted.
"""
