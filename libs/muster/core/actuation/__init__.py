"""Actuation: the decisions not yet visible on the API server, and the requests for carrying out each decision.

Stage ``Actuator`` (``intents.py``) keeps these decisions and decides nothing. The runner of the actuator sends the
requests of ``carrying.py`` and returns the answers; the presenter uses the same patches.
"""
