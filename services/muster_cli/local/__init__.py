"""The parts of ``muster up``: a home for files, a broker, a cluster, services, and the narrator of the log."""
