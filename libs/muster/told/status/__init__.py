"""Statuses: the status of a job, a gang or a Ray cluster as a closed code with values.

Pure functions of the read model. ``views`` and ``presentation`` show statuses, ``wording`` makes the sentences.
"""
