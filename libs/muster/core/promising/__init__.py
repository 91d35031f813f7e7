"""Promised starts: when a waiting job starts, by the learned run times of others, and a bound that is kept in 9 of
10.
"""
