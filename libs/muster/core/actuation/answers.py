"""What the API server's answers mean to whoever carries a decision out: done, failed, look again, or try later."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from muster.core.objects.meta import UnreadableError, decode
from muster.events.effects import EffectApplied, EffectFailed


class _Status(Struct, frozen=True):
    message: str = ""
    reason: str = ""


class Reread(Struct, frozen=True):
    """The object is not as the write supposed: read it, and see what it says about the decision."""


class Retry(Struct, frozen=True):
    """Try again later: the API server is busy, out of reach, or forbids us what it should not."""

    reason: Literal["unavailable", "throttled", "conflict", "forbidden"]
    message: str


Answer = EffectApplied | EffectFailed | Reread | Retry


def retry(status: int, message: str) -> Retry | None:
    """Whether an answer says to try again later."""
    if status in (409, 429) or status >= 500:
        return Retry({409: "conflict", 429: "throttled"}.get(status, "unavailable"), message)  # type: ignore[arg-type]
    verbs = ("patch", "create", "delete")
    if status == 401 or (status == 403 and any(f"cannot {verb} resource" in message for verb in verbs)):
        return Retry("forbidden", message)
    return None


def message_of(body: bytes) -> str:
    """The message of a Status object, or the head of whatever came instead."""
    try:
        status: _Status = decode(body, _Status)
    except UnreadableError:
        return body[:200].decode("utf-8", "replace")
    return status.message or status.reason
