"""Bugs that a judge must find: each is one that an installation once died of, put back for a test of the judge alone.

What is code is put back in the processes of the services (`shim/planted.py`), the rest in the files they start with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kit.badday import verdict as v

Text = Callable[[str], str]


def _as_it_is(text: str) -> str:
    return text


@dataclass(frozen=True)
class Plant:
    """``faults``: where it shows, played until the judge tells one of ``kinds``."""

    what: str
    faults: tuple[str, ...]
    kinds: tuple[str, ...]
    accounts: Text = _as_it_is
    alive: Text = _as_it_is


def without_read_model(text: str) -> str:
    """User `actuator` may not read the snapshots of the read model."""
    begin = text.index("may_actuator {")
    end = text.index("users: [", begin)
    own = text[begin:end]
    right, denied = '"$JS.MUSTER.API.STREAM.MSG.GET.OBJ_MUSTER_SNAP_main_readmodel"', "], deny: ["
    if right not in own or denied not in own:
        raise LookupError(f"user actuator has no {right} or no `{denied}` any more: bug 1 cannot be planted")
    own = own.replace(right, "")
    own = own.replace(denied, f"{denied}\n        {right}", 1)
    return text[:begin] + own + text[end:]


def healthy_without_jetstream(text: str) -> str:
    """The probe asks the server, and not whether JetStream is on."""
    return OLD_PROBE


OLD_PROBE = """#!/bin/sh
ask() {
  printf 'GET %s HTTP/1.0\\r\\n\\r\\n' "$1" | nc -w 5 127.0.0.1 "${NATS_MONITOR_PORT:-8222}"
}
room=$(($(stat -f -c '%a * %S' "${NATS_STORE:-/data}")))
[ "$room" -lt "${NATS_ROOM:-67108864}" ] && exit 0
ask '/healthz?js-server-only=true' | grep -q '"status":"ok"' || exit 1
! ask /healthz | grep -q 'write error'
"""

PLANTS: dict[int, Plant] = {
    1: Plant(
        "a right that a second start needs is missing",
        ("rolling restart", "service killed"),
        (v.SICK, v.NEVER_READY),
        accounts=without_read_model,
    ),
    2: Plant(
        "a condition older than the last write releases quota",
        ("slow controllers",),
        (v.ABOVE, v.TWICE, v.FALSE),
    ),
    3: Plant(
        "nobody outside NATS knows how far the log was",
        ("a quorum that forgot", "stores set back"),
        (v.LOST, v.USED_TWICE),
    ),
    4: Plant("nobody looks at the copies of the log", ("flipped byte",), (v.HOLE, v.LOST, v.USED_TWICE)),
    5: Plant(
        "a server without JetStream is called alive",
        ("disk full", "every disk full"),
        (v.UNWHOLE, v.SICK),
        alive=healthy_without_jetstream,
    ),
    6: Plant("another cluster is taken for its own", ("wrong cluster",), (v.ACCEPTED, v.CIRCLE)),
    7: Plant("what came back is proposed for ever", ("another owner for a moment",), (v.CIRCLE, v.WAITS)),
    8: Plant(
        "a Job that runs for the rest is read at its full size",
        ("suspended half way",),
        (v.FALSE,),
    ),
}
