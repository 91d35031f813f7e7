"""What happened to a job or a gang: position in the log, the event, and the numbers of the moment.

Values only; ``told.wording.events`` makes sentences of them.
"""

from __future__ import annotations

import sys
from typing import Literal

import msgspec
from msgspec import Struct, field, structs

from muster.events.base import Decision
from muster.events.registry import AnyEvent
from muster.model.demand import Shortfall
from muster.model.keys import Ref
from muster.model.podtrouble import PodTrouble
from muster.model.resources import Vector
from muster.told.codes.values import Leaving

Weight = Literal["detail", "step", "turn"]
"""How much the happening matters: a ``turn`` changes the state of the subject, a ``step`` leads to a turn, a
``detail`` neither.
"""


class Where(Struct, frozen=True, omit_defaults=True):
    """A place in a queue at the moment; position 0: evaluated at once."""

    position: int = 0
    length: int = 0
    ahead: tuple[str, ...] = ()
    """The first few before it."""


class Used(Struct, frozen=True):
    """The usage of one resource at a node of the tree, base units; limit -1: none."""

    resource: str
    used: int
    limit: int


class SetAsked(Struct, frozen=True):
    """One pod set of a job."""

    name: str
    count: int
    request: Vector


class Happening(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One happening. ``what`` is the tag of the event, or the part of a fact that changed."""

    at: int
    """Log time, ms."""
    seq: int
    item: int
    what: str
    weight: Weight
    times: int = 1
    """Over 1 when the same happened this many times in a row, last at ``last_at``."""
    last_at: int = 0
    last_seq: int = 0
    event: AnyEvent | None = None
    """The event, with long lists cut; None where a fact about the job changed."""
    kind: str = ""
    name: str = ""
    """Of another object, or namespace/name of another job."""
    words: str = ""
    """The detail or message of another system, or the rule of a placement."""
    pod: PodTrouble | None = None
    """Why a pod does not run."""
    path: str = ""
    number: int = 0
    """Generation or number of pods; ``what`` says which."""
    span: int = -1
    """ms since the event before; -1 where unknown."""
    flag: bool = False
    """Suspended, or still charged."""
    request: Vector | None = None
    before: Vector | None = None
    sets: tuple[SetAsked, ...] = ()
    more: int = 0
    """How many names are beyond the listed ones."""
    used: tuple[Used, ...] = ()
    where: Where | None = None
    refusal: Shortfall | None = None
    """Of another job with the same request."""
    leaving: Leaving | None = None
    nodes: tuple[tuple[str, int], ...] = ()
    """(node, how many pods)"""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[Happening])

MAX_PER_SUBJECT = 100
"""Happenings kept of one subject: the first, and the newest; details are dropped before the rest."""


class KeptPast(Struct):
    """The happenings of one subject, oldest first.

    Those of a subject that is over are kept as text: a snapshot is read without them, and they take a tenth of the
    memory. The read models of one process share the text.
    """

    fresh: list[Happening] = field(default_factory=list)
    packed: str = ""
    """JSON of all happenings, once the subject is over; ``fresh`` is empty then."""

    def all(self) -> list[Happening]:
        """Every kept happening; a list of the caller's own where the subject is over."""
        return _decoder.decode(self.packed) if self.packed else self.fresh

    def add(self, new: Happening) -> None:
        """Append a happening, within ``MAX_PER_SUBJECT``. The same happening in a row is counted in one entry."""
        kept = self.all()
        _append(kept, new)
        if self.packed:
            self.packed = _text(kept)

    def pack(self) -> None:
        """The subject is over."""
        if self.fresh:
            self.packed, self.fresh = _text(self.fresh), []

    def forget(self) -> None:
        """Drop all happenings."""
        self.packed, self.fresh = "", []


def _text(happenings: list[Happening]) -> str:
    return sys.intern(_encoder.encode(happenings).decode())


def _append(kept: list[Happening], new: Happening) -> None:
    if kept:
        last = kept[-1]
        same = last.what == new.what and last.weight == new.weight
        if same and _alike(last, new):
            kept[-1] = structs.replace(last, times=last.times + 1, last_at=new.at, last_seq=new.seq)
            return
    kept.append(new)
    if len(kept) > MAX_PER_SUBJECT:
        del kept[next((index for index, happening in enumerate(kept) if index and happening.weight == "detail"), 1)]


def _alike(last: Happening, new: Happening) -> bool:
    cause = new.event.cause if isinstance(new.event, Decision) else None
    event = last.event
    if cause is not None and isinstance(event, Decision):
        event = structs.replace(event, cause=cause)
    moved = structs.replace(
        new,
        at=last.at,
        seq=last.seq,
        item=last.item,
        times=last.times,
        last_at=last.last_at,
        last_seq=last.last_seq,
        event=event,
    )
    return structs.replace(last, event=event) == moved and event == new.event


class Taker(Struct, frozen=True):
    """One reservation, as a waiting job sees the reservation."""

    seq: int
    job: str
    queue: str
    request: Vector
    place: tuple[int, int, str, str] | None
    """The place of the job in the queue."""


class Release(Struct, frozen=True):
    """The reason to evaluate other jobs: a job that released quota, or (without a job) a change of the tree."""

    job: str = ""
    request: Vector | None = None


Said = tuple[Ref, Happening]
