"""The cell: the list of all deciders, the seat of a stage, and a cell in memory.

Nothing is decided here: a seat folds commits and returns the next commit of its stage. Runners, the replay, the trace
simulation and tests drive every stage through a seat.
"""
