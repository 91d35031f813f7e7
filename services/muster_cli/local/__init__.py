"""What ``muster up`` consists of: a home for its files, a broker, a cluster, services, and the narrator of the log."""
