"""The deciders at work: which there are, the seat of each, a cell in memory, and the judge of what they read."""
