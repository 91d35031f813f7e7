"""Promised starts: when a waiting job starts, by what was learned of others, and a bound that is kept in 9 of 10."""
