"""Placement: which nodes take the pods of a gang, and why others do not."""
