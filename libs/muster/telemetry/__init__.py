"""Logs, metrics and traces: the only importer of structlog, opentelemetry and prometheus_client."""
