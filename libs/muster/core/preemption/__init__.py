"""Preemption: who is owed quota that others use, and whose work gives way for it."""
