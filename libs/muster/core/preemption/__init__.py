"""Preemption: the claimants that are owed quota or nodes, and the victims for each claimant.

Stage ``Preemptor`` (``preemptor.py``) proposes plans: victims, workers to release, jobs to move. The quota accountant
judges each proposal and alone orders evictions.
"""
