"""Accounting: how the accountant's state changes with each event, and the decisions that are due then.

Each module has the folds and the due decisions of one subject: growth, pods of no job, shares, suspensions. Only the
accountant calls them.
"""
