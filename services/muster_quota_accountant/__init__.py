"""The quota accountant: the one authority on quota."""
