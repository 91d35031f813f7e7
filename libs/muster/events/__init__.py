"""The vocabulary of the log: facts (seen on the cluster), decisions, effects, and events about the log itself."""
