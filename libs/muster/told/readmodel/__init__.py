"""The read model: the state of every job, gang and queue as the log tells it, with histories.

Stage ``ReadModel`` (``model.py``) decides nothing. The gateway, the CLI, the publisher and the presenter fold the log
with this stage and ask ``status`` and ``views``.
"""
