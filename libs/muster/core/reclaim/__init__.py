"""Who gives way to a waiting job: one search, asked with the rules of each profile."""
