"""One question without a cluster: what the real stages decide about a state that a file describes."""
