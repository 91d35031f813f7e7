"""NATS JetStream behind the ports: the only package that imports nats."""

from __future__ import annotations

import sys


def _import_nats() -> None:
    """Import nats-py without aiohttp, which nats-py needs for websockets alone: websockets are not used, and the
    import would take a fifth of the time of a command that only reads a log.
    """
    modules: dict[str, object] = sys.modules  # type: ignore[assignment]
    if "aiohttp" in modules or "nats" in modules:
        return
    modules["aiohttp"] = None
    try:
        import nats  # noqa: F401
    finally:
        del modules["aiohttp"]


_import_nats()
