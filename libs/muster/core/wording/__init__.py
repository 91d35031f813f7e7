"""Sentences: the only place where values become English. It imports values, never a state."""
