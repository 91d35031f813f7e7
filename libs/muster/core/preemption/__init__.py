"""Preemption: the claimants that are owed quota which others use, and the victims for them."""
