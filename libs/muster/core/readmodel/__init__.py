"""The read model: what the log says of every job, gang and queue, kept for whoever asks. It decides nothing."""
