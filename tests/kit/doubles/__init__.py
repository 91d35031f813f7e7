"""Test doubles: a log in memory, operators of other projects, schedulers and drivers that no test starts for real."""
