"""The deciders at work: their list, the seat of each, a cell in memory, and the judge of the commits they read."""
