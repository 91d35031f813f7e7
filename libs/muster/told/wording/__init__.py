"""Wording: every sentence for users, made of values and never of a state.

Each closed set of reasons has a table of words, complete at import. ``views`` and ``presentation`` call this room, the
CLI and the gateway for errors.
"""
