"""The watcher: what the cluster is, as facts in the log."""
