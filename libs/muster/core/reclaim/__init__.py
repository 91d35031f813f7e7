"""Victims for a waiting job: one search, asked with the rules of each profile."""
