"""The deciders at work: which there are, the seat of each, and a cell in memory."""
