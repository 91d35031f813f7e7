"""Queueing: the order in each queue and between queues, and the candidates to try now.

Stage ``QueueSorter`` (``sorter.py``) queues, refuses and proposes jobs. The preemptor and the read model keep the same
queues with the folds of ``queuefolds.py``.
"""
