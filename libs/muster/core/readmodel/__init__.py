"""The read model: what the log says of every job, gang and queue, kept for every reader. It decides nothing."""
