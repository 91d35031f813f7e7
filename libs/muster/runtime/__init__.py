"""Runners: they drive the pure stages against a log, live, in replay, or in virtual time."""
