"""The house of judging: the counted commits of a log, and the invariants of a log.

``judge.py`` admits each stored message, for the bus and for every reader of logs. The auditor (``auditor.py``) checks
the invariants with books of its own, for ``muster check``, the recorded histories and the simulations.
"""
