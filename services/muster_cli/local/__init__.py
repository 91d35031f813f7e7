"""What ``muster up`` consists of: a home for its files, a broker, a cluster, the services, and who tells of them."""
