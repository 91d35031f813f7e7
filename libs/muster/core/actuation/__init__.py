"""Actuation: the decisions that the API server does not show yet, and the requests that carry each one out.

Stage ``Actuator`` (``intents.py``) keeps these decisions and decides nothing. The runner of the actuator sends the
requests of ``carrying.py`` and returns the answers; the presenter uses the same patches.
"""
