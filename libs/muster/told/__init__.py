"""The house of telling: codes, statuses, stories, sentences and objects for readers of the log.

Stage ``ReadModel`` (``readmodel/model.py``) keeps the answers and decides nothing. The gateway, the CLI, the publisher
and the presenter read from here; no decider imports this house.
"""
