"""Accounting: how the state of the accountant changes with each event, and what is due then."""
