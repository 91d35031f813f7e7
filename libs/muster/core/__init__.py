"""The house of decisions: pure stages, without clock, chance, I/O, logging, environment or floats.

A stage folds the log into a state and decides from the state alone; runners do everything else. The core imports
nothing of the other two houses: ``muster.told`` tells readers about the log, ``muster.audit`` judges the log.
"""
