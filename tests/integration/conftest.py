from kit.nats import cell, connection, js, nats_server

__all__ = ["cell", "connection", "js", "nats_server"]
