"""Structured logs: JSON lines in pods, readable lines on a terminal. Event names are constant, values are keys."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import msgspec

from muster.model.text import clean

_rich = sys.modules.pop("rich", None)
sys.modules["rich"] = None  # type: ignore[assignment]
import structlog  # noqa: E402 - it would load rich, 3 MB, for tracebacks in colour; ours are text.

del sys.modules["rich"]
if _rich is not None:
    sys.modules["rich"] = _rich

MAX_VALUE = 2_000
_SECRET = ("token", "password", "secret", "authorization", "credential")

Logger = structlog.typing.FilteringBoundLogger


def configure(*, level: str = "info", style: str = "auto", stream: TextIO | None = None) -> None:
    """Set up logging for this process. ``style``: json, console, or auto (console on a terminal)."""
    out = stream if stream is not None else sys.stderr
    console = style == "console" or (style == "auto" and out.isatty())
    chain: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _guard,
    ]
    chain.append(structlog.dev.ConsoleRenderer(colors=out.isatty()) if console else _render_json)
    structlog.configure(
        processors=chain,
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=out),
        cache_logger_on_first_use=True,
    )


def get(**context: object) -> Logger:
    """A logger that adds ``context`` to every line."""
    logger: Logger = structlog.get_logger(**context)
    return logger


def _guard(_logger: Any, _method: str, values: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """No secrets, no endless values, no line breaks or terminal codes from the text of others."""
    for key, value in values.items():
        if any(word in key.lower() for word in _SECRET):
            values[key] = "[hidden]"
        elif isinstance(value, str):
            short = value if len(value) <= MAX_VALUE else value[:MAX_VALUE] + "…"
            values[key] = short if key == "exception" else clean(short)
    return values


def _render_json(_logger: Any, _method: str, values: MutableMapping[str, Any]) -> str:
    event = values.pop("event", "")
    return msgspec.json.encode({"event": event, **values}, enc_hook=str).decode()
