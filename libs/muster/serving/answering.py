"""The questions that the gateway answers: one row for each, with the parameters and the shape of the answer.

The routes of the service and the OpenAPI document are both made of this table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

import muster
from muster.core.docket import Judge
from muster.core.promising.projection import Projected
from muster.events.envelope import Stored
from muster.events.facts import WorkloadAbridged
from muster.ports import Clock
from muster.serving import shapes, supposed, tales, views
from muster.serving.access import Viewed
from muster.serving.asking import ManifestError, read_job
from muster.serving.beside import AwayError, LateError
from muster.serving.causes import causes
from muster.serving.happened import happened, marks
from muster.serving.health import health
from muster.serving.jobrows import JobFilter
from muster.serving.limits import MOST_ALL_QUESTIONS, MOST_QUESTIONS, TooManyError, UnderWay
from muster.serving.live import Live
from muster.serving.moments import LogMark, OutsideError
from muster.serving.scope import Lens, Scope
from muster.serving.whatif import ChangeError
from muster.told.readmodel.readstate import ReadState

SECOND = 1_000
MOST_SECONDS = 1 << 40
MOST_DIGITS = 18
"""Of a number in a question: more than any sequence has, and few enough for every reader of numbers."""
TOO_DEEP = "the body is nested too deeply to be read: no job and no change is as deep as that"
UNITS = {"s": SECOND, "m": 60 * SECOND, "h": 3_600 * SECOND, "d": 86_400 * SECOND}


class BadRequestError(Exception):
    """The request cannot be understood, and why."""


class NotAllowedError(Exception):
    """The question names a namespace that the viewer may not see, whether the namespace exists or not."""


class Asked(Struct, frozen=True):
    """One question: a state, and the viewer's lens on the state."""

    state: ReadState
    lens: Lens
    moment: shapes.MomentView
    now: int
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes
    viewed: Viewed
    foreseen: Mapping[str, Projected] | None
    """The projected starts of waiting jobs, where the question needs them."""


Answer = Callable[["Questions", Asked], Awaitable[Struct]]


class Question(Struct, frozen=True):
    """One row of the table. ``query``: {parameter: meaning}."""

    path: str
    says: str
    shape: type[Struct]
    answer: Answer
    query: Mapping[str, str] = {}
    body: type[Struct] | None = None
    foresees: bool = False
    """The answer needs the projected starts of waiting jobs."""

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"


AT = "A moment: a sequence, GENERATION-SEQUENCE, a time as 2026-03-01T12:00:00Z, or -5m before now; else now."
STARTS = {"starts": "0: without promised starts, for which the queues are played forward."}
PAGE = {"skip": "Rows to leave out first.", "limit": "Rows at most."}


class Questions:
    """Answers from one followed log."""

    def __init__(self, live: Live, clock: Clock, *, acting: bool = True) -> None:
        self.live = live
        self._clock = clock
        self._acting = acting
        self._lens: tuple[int, Scope, Lens] | None = None
        self._namespaces: tuple[int, set[str]] | None = None
        """The sequence of a state, and its namespaces."""
        self._looking = UnderWay("questions about later", MOST_QUESTIONS, MOST_ALL_QUESTIONS)

    def namespaces(self) -> set[str]:
        """Every namespace with an object in the read model: a walk over all objects, made once for each state."""
        seq = self.live.state.seq
        if self._namespaces is None or self._namespaces[0] != seq:
            self._namespaces = (seq, self._walked())
        return self._namespaces[1]

    def _walked(self) -> set[str]:
        state = self.live.state
        every = {record.ref.namespace for record in state.records.values()}
        every |= {pod.ref.namespace for pod in state.nodes.pods.values()}
        every |= {record.name.partition("/")[0] for record in state.gang_records.values() if "/" in record.name}
        return {*every, *state.queues.ledger.leaf_of} - {""}

    async def answer(
        self, route: Question, viewed: Viewed, path: Mapping[str, str], query: Mapping[str, str], body: bytes
    ) -> Struct:
        """Raises BadRequestError, NotAllowedError, MissingError, OutsideError."""
        if any(not viewed.scope.sees(name) for name in named(path, query)):
            raise NotAllowedError("the right to see a namespace is the right to list its pods, and you do not have it")
        unknown = [name for name in query if name != "at" and name not in route.query]
        if unknown:
            known = ", ".join(("at", *route.query))
            raise BadRequestError(f"there is no parameter {unknown[0][:60]!r} here; there are {known}")
        at = query.get("at", "")
        now = self._clock.now()
        state = self.live.state if not at else await self.live.moments.at(self.mark(at, now))
        if at:
            now = state.now
        foresees = route.foresees and number(query, "starts", 1, 1) != 0
        foreseen = await self.live.foresight.foreseen(state, now, path, live=not at) if foresees else None
        # Only now: commits were folded during the wait, which lens and moment must know.
        lens = self.lens(viewed.scope, state)
        moment = views.moment_of(state, now, live=not at and self.live.caught_up)
        return await route.answer(self, Asked(state, lens, moment, now, path, query, body, viewed, foreseen))

    def mark(self, text: str, now: int) -> LogMark:
        """The moment a text names. Raises BadRequestError, OutsideError."""
        head, dash, tail = text.partition("-")
        generation, sequence = whole(head), whole(tail)
        if generation and not dash:
            return LogMark(seq=generation)
        if generation and sequence:
            if self.live.log.identity.generation_of(sequence) != generation:
                raise OutsideError(f"sequence {sequence} is not of generation {generation} of this log")
            return LogMark(seq=sequence)
        ago = whole(text[1:-1])
        if text.startswith("-") and text[-1] in UNITS and ago is not None:
            return LogMark(at=now - ago * UNITS[text[-1]])
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise BadRequestError("at is no moment: write 1200, 2026-03-01T12:00:00Z or -5m") from None
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return LogMark(at=int(moment.timestamp() * SECOND))

    def lens(self, scope: Scope, state: ReadState) -> Lens:
        """A lens costs a walk over all names: one lens is kept while the state and the scope are the same."""
        if scope.whole:
            return Lens(scope, state)
        if self._lens is None or self._lens[:2] != (state.seq, scope):
            self._lens = (state.seq, scope, Lens(scope, state))
        return self._lens[2]

    async def supposed(self, asked: Asked, method: str, *args: object) -> Struct:
        """The effects of a change, or the prospects of a new job. Raises ChangeError, LateError, TooManyError,
        AwayError.
        """
        with self._looking.one(asked.viewed.name):
            projection: Struct = await self.live.foresight.looked(
                asked.state, asked.now, method, *args, live=not asked.query.get("at")
            )
        return projection

    async def commit(self, seq: int) -> Stored | None:
        """The commit at a sequence, with each workload in full; None where there is none."""
        if not self.live.log.identity.origin <= seq <= self.live.state.seq:
            return None
        async with aclosing(self.live.log.follow(seq - 1)) as stream:
            batch = await anext(stream)
        stored = next((stored for stored in batch if stored.seq == seq), None)
        if stored is None or not any(isinstance(event, WorkloadAbridged) for event in stored.commit.events):
            return stored
        before = await self.live.moments.copy_at(seq - 1)
        return Judge(before.docket, before.log_id, before.generation).hear(stored)

    @property
    def acting(self) -> bool:
        return self._acting


def named(path: Mapping[str, str], query: Mapping[str, str]) -> list[str]:
    """The namespaces that a question names."""
    return [namespace for namespace in (path.get("namespace", ""), query.get("namespace", "")) if namespace]


def number(query: Mapping[str, str], name: str, default: int, most: int) -> int:
    """Raises BadRequestError."""
    text = query.get(name, "")
    if not text:
        return default
    value = whole(text)
    if value is None or value > most:
        raise BadRequestError(f"{name} is a number from 0 to {most}")
    return value


def whole(text: str) -> int | None:
    """The number of a text of at most MOST_DIGITS digits; None for any other text."""
    return int(text) if len(text) <= MOST_DIGITS and text.isdecimal() else None


async def _viewer(_of: Questions, asked: Asked) -> Struct:
    names, identity = asked.viewed.scope.namespaces, _of.live.log.identity
    shown = None if names is None else sorted(names)
    return shapes.Viewer(asked.viewed.name, shown, asked.viewed.scope.cluster, identity.cell, muster.__version__)


async def _position(_of: Questions, asked: Asked) -> Struct:
    return asked.moment


async def _health(_of: Questions, asked: Asked) -> Struct:
    return health(asked.state, asked.lens, asked.moment)


async def _jobs(_of: Questions, asked: Asked) -> Struct:
    query = asked.query
    states = tuple(text for text in query.get("state", "").split(",") if text)
    ended = number(query, "ended", 0, MOST_SECONDS)
    wanted = JobFilter(
        states,
        query.get("queue", ""),
        query.get("namespace", ""),
        query.get("kind", ""),
        name=query.get("name", ""),
        outcome=query.get("outcome", ""),
        ended_after=asked.now - ended * SECOND if ended else 0,
    )
    skip, limit = number(query, "skip", 0, 1 << 31), number(query, "limit", 50, views.MOST_ROWS)
    return views.jobs(
        asked.state, asked.lens, asked.moment, wanted, skip=skip, limit=limit, now=asked.now, foreseen=asked.foreseen
    )


async def _why(of: Questions, asked: Asked) -> Struct:
    key = f"{asked.path['namespace']}/{asked.path['name']}"
    kind = asked.query.get("kind", "")
    return views.why(
        asked.state,
        asked.lens,
        asked.moment,
        key,
        kind,
        now=asked.now,
        acting=of.acting,
        foreseen=asked.foreseen,
        every=bool(number(asked.query, "all", 0, 1)),
    )


async def _causes(of: Questions, asked: Asked) -> Struct:
    seq, index = whole(asked.path["sequence"]), whole(asked.path["index"])
    if seq is None or index is None:
        raise BadRequestError("an event is named by two numbers: its sequence, and its index in the commit")
    chain = await causes(of.commit, asked.lens, seq, index, asked.state)
    if not chain:
        raise views.MissingError(f"there is no event {seq}-{index} in this log")
    return shapes.CausesView(asked.moment, chain)


async def _queues(_of: Questions, asked: Asked) -> Struct:
    return views.queues(asked.state, asked.lens, asked.moment)


async def _story(_of: Questions, asked: Asked) -> Struct:
    limit = number(asked.query, "limit", 200, tales.MOST_EVENTS)
    return tales.tale(asked.state, asked.lens, asked.moment, asked.query.get("queue", ""), now=asked.now, limit=limit)


async def _nodes(_of: Questions, asked: Asked) -> Struct:
    skip, limit = number(asked.query, "skip", 0, 1 << 31), number(asked.query, "limit", 200, views.MOST_ROWS)
    return views.nodes(asked.state, asked.lens, asked.moment, skip=skip, limit=limit)


async def _gangs(_of: Questions, asked: Asked) -> Struct:
    skip, limit = number(asked.query, "skip", 0, 1 << 31), number(asked.query, "limit", 200, views.MOST_ROWS)
    return views.gangs(asked.state, asked.lens, asked.moment, skip=skip, limit=limit)


async def _gang(_of: Questions, asked: Asked) -> Struct:
    return views.gang(asked.state, asked.lens, asked.moment, f"{asked.path['namespace']}/{asked.path['name']}")


async def _happened(_of: Questions, asked: Asked) -> Struct:
    limit = number(asked.query, "limit", 50, 500)
    return happened(asked.state, asked.lens, asked.moment, queue=asked.query.get("queue", ""), limit=limit)


async def _moments(of: Questions, asked: Asked) -> Struct:
    limit = number(asked.query, "limit", 400, 1000)
    identity, marked = of.live.log.identity, marks(asked.state, asked.lens, limit=max(limit, 2))
    first = shapes.MomentView(
        identity.generation_of(identity.origin), identity.origin, marked[0].at if marked else "", False
    )
    return shapes.MomentsView(first, asked.moment, marked)


async def _series(of: Questions, asked: Asked) -> Struct:
    queue, resource = asked.query.get("queue", ""), asked.query.get("resource", views.GPU)
    if queue not in asked.state.queues.ledger.nodes or not asked.lens.sees_queue(queue):
        raise views.MissingError(f"there is no quota {queue[:200]}, or none that you may see")
    return of.live.series.of(queue, resource, asked.state, asked.moment)


async def _whatif(of: Questions, asked: Asked) -> Struct:
    try:
        wanted = msgspec.json.decode(asked.body, type=supposed.Changes)
        return await of.supposed(asked, "what_if", asked.viewed.scope, wanted.changes, wanted.job)
    except (msgspec.DecodeError, ChangeError) as err:
        raise BadRequestError(str(err)) from err
    except RecursionError as err:
        raise BadRequestError(TOO_DEEP) from err


async def _ask(of: Questions, asked: Asked) -> Struct:
    try:
        workload = read_job(msgspec.json.decode(asked.body, type=supposed.Submission).manifest)
    except (msgspec.DecodeError, ManifestError) as err:
        raise BadRequestError(str(err)) from err
    except RecursionError as err:
        raise BadRequestError(TOO_DEEP) from err
    return await of.supposed(asked, "ask", asked.viewed.scope, workload)


ROUTES: tuple[Question, ...] = (
    Question("/api/v1/viewer", "Your name here, and the namespaces that you may see.", shapes.Viewer, _viewer),
    Question(
        "/api/v1/health", "Whether the cell works, and what needs attention, by its log.", shapes.HealthView, _health
    ),
    Question("/api/v1/position", "The newest position of the log, or that of a moment.", shapes.MomentView, _position),
    Question(
        "/api/v1/jobs",
        "Jobs, those that hold quota first, then those that wait, in their order.",
        shapes.JobsView,
        _jobs,
        {
            "state": "Only these states, with commas: running, waiting, finished ...",
            "queue": "Only of this quota and those below it.",
            "namespace": "Only of this namespace.",
            "kind": "Only of this kind.",
            "ended": "Of those that ended, only those that ended so many seconds ago or less.",
            "outcome": "Only those that ended so: succeeded, failed or invalid.",
            "name": "Only with this in NAMESPACE/NAME.",
            **STARTS,
            **PAGE,
        },
        foresees=True,
    ),
    Question(
        "/api/v1/jobs/{namespace}/{name}",
        "Why a job waits, or what became of it; also by the name of one of its pods.",
        shapes.WhyView,
        _why,
        {"kind": "Where jobs of several kinds have one name.", "all": "1: with every small step.", **STARTS},
        foresees=True,
    ),
    Question("/api/v1/events/{sequence}/{index}", "An event and the chain of its causes.", shapes.CausesView, _causes),
    Question(
        "/api/v1/queues", "The quota tree: guarantee, use, what is held and borrowed.", shapes.QueuesView, _queues
    ),
    Question(
        "/api/v1/story",
        "What is kept of a quota and those below it: numbers, waiting jobs, turns.",
        shapes.TaleView,
        _story,
        {"queue": "Its path.", "limit": "Turns at most."},
    ),
    Question("/api/v1/nodes", "Nodes, what is free there, and the pods on them.", shapes.NodesView, _nodes, PAGE),
    Question("/api/v1/gangs", "Gangs of pods that are placed as one.", shapes.GangsView, _gangs, PAGE),
    Question(
        "/api/v1/gangs/{namespace}/{name}",
        "One gang, also by the name of a pod.",
        shapes.GangTold,
        _gang,
    ),
    Question(
        "/api/v1/happened",
        "Admissions, evictions and other turns, the newest first.",
        shapes.HappenedView,
        _happened,
        {"queue": "Only of this quota and those below it.", "limit": "Events at most."},
    ),
    Question("/api/v1/moments", "The turns to slide along.", shapes.MomentsView, _moments, {"limit": "Marks at most."}),
    Question(
        "/api/v1/series",
        "What a quota used over time.",
        shapes.SeriesView,
        _series,
        {"queue": "Its path.", "resource": "Which resource; nvidia.com/gpu where none is named."},
    ),
    Question("/api/v1/whatif", "What a change would do now.", supposed.WhatIf, _whatif, body=supposed.Changes),
    Question(
        "/api/v1/ask",
        "What a job would meet that is not submitted yet.",
        supposed.AskView,
        _ask,
        body=supposed.Submission,
    ),
)


def problem(err: Exception, scope: Scope, state: ReadState) -> shapes.Problem:
    """Why no answer is given, within the rights of the viewer."""
    return shapes.Problem(Lens(scope, state).words(str(err)) if not scope.whole else str(err))


EXPECTED: dict[type[Exception], int] = {
    BadRequestError: 400,
    NotAllowedError: 403,
    views.MissingError: 404,
    OutsideError: 404,
    TooManyError: 429,
    LateError: 503,
    AwayError: 503,
}
"""Error of a question -> status of the answer"""
