"""The vocabulary of the log: facts (seen on the cluster), decisions, effects, and what the log says of itself."""
