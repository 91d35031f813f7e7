"""The search for victims: the cheapest running jobs whose eviction makes a waiting job fit, in quota and on nodes.

One search (``search.py``) runs with the rules of each reason: owed quota, priority, service. The preemptor calls the
search. The accountant judges by the same rules (``quota/evictionrules.py``).
"""
