"""The pure deciders: no clock, no randomness, no I/O, no logging, no environment, no floats.

A stage folds the log into its state and decides from that state alone; runners do everything else.
"""
