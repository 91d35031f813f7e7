"""The search for victims: the cheapest running jobs with which a waiting job fits, in quota and on nodes.

One search (``search.py``), asked with the rules of each profile (``profiles.py``): owed quota, priority, service. The
preemptor calls the profiles; the accountant judges by the same rules (``quota/evictionrules.py``).
"""
