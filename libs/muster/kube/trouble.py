"""Why a list or watch ended, as a closed set: what a reflector does next depends on nothing else."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from muster.kube.objects import RESOURCE_VERSION_TOO_LARGE, Status, decode_status
from muster.ports import ApiResponse, ApiStatusError


class RestartCause(StrEnum):
    """Label of ``watch_restarts_total``."""

    ENDED = "ended"
    """The server closed the stream in order, as it does after timeoutSeconds."""
    UNREACHABLE = "unreachable"
    EXPIRED = "expired"
    """410: our version is too old for the server to continue from."""
    TOO_NEW = "too_new"
    """504: our version is one that this server has not seen yet."""
    FORBIDDEN = "forbidden"
    THROTTLED = "throttled"
    UNAVAILABLE = "unavailable"
    REFUSED = "refused"
    """Another 4xx: this request will never succeed."""
    ABSENT = "absent"
    GARBLED = "garbled"
    """Something that is not Kubernetes JSON, mostly a proxy's page."""
    STREAM_ERROR = "stream_error"
    """An ERROR event of another kind than the above."""


class WatchTrouble(Struct, frozen=True):
    """A cause, in the server's words, and the time it asked us to wait."""

    cause: RestartCause
    detail: str = ""
    retry_after_s: float | None = None


def from_response(response: ApiResponse) -> WatchTrouble:
    """What a list's answer other than 2xx means."""
    status = decode_status(response.body)
    after = response.retry_after_s if response.retry_after_s is not None else status.retry_after_s
    return WatchTrouble(_cause(response.status, status.message), status.message or f"HTTP {response.status}", after)


def from_error(err: ApiStatusError) -> WatchTrouble:
    """What a watch's answer other than 200 means."""
    return WatchTrouble(_cause(err.status, err.message), err.message, err.retry_after_s)


def from_event(status: Status) -> WatchTrouble:
    """The meaning of an ERROR event. The code counts for less than in HTTP: only causes cured by a relist or a wait
    are kept apart.
    """
    if status.code == 410 or status.reason in {"Expired", "Gone"}:
        cause = RestartCause.EXPIRED
    elif _too_large(status.message):
        cause = RestartCause.TOO_NEW
    elif status.code == 429:
        cause = RestartCause.THROTTLED
    else:
        cause = RestartCause.STREAM_ERROR
    return WatchTrouble(cause, status.message or status.reason, status.retry_after_s)


def _cause(code: int, message: str) -> RestartCause:
    match code:
        case 404:
            return RestartCause.ABSENT
        case 410:
            return RestartCause.EXPIRED
        case 401 | 403:
            return RestartCause.FORBIDDEN
        case 429:
            return RestartCause.THROTTLED
        case 504 if _too_large(message):
            return RestartCause.TOO_NEW
        case _ if code >= 500 or code == 408:
            return RestartCause.UNAVAILABLE
        case _:
            return RestartCause.REFUSED


def _too_large(message: str) -> bool:
    return RESOURCE_VERSION_TOO_LARGE in message.lower()
