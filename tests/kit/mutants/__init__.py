"""Mutants: numbers of the core changed one at a time, to see whether any test notices."""
