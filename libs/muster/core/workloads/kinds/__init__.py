"""Kinds: one file for each kind of job, with the phases, the needs and the fields of its object.

``registry.py`` one folder above has a row for each kind and is the only importer.
"""
