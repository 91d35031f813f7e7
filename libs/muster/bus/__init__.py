"""NATS JetStream behind the ports: the only package that imports nats."""
