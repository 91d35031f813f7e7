"""Log keeping: archives and log files, roll-over, pruning, and snapshots of states."""
