"""The text of a file that a simulation reads."""

from __future__ import annotations

from pathlib import Path

from muster.model.language import say
from muster.tracesim.model import TraceError


def text_of(path: Path, encoding: str = "utf-8") -> str:
    """Raises TraceError where the bytes are no text; OSError."""
    try:
        return path.read_text(encoding=encoding)
    except UnicodeDecodeError as err:
        raise TraceError(
            say("{path} is no text in UTF-8: {reason} at byte {start}", path=path, reason=err.reason, start=err.start)
        ) from err
