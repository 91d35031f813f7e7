"""Promises: when a waiting job starts, with a bound that holds for 9 jobs of 10.

Nothing is decided here: the queue is played forward with learned run times. The read model keeps the promises; the
status of a job and the wording show promises.
"""
