"""The contract of every stage, the rule sets and the deadlines.

Rule sets: the log names the rule set in force, so builds of two versions decide alike. A build knows the rule sets 1 to
NEWEST. The event ``ruleset_activated`` puts a rule set in force, for all stages at the same sequence. To change a
decision: raise NEWEST, compare ``state.ruleset`` where the rules differ, and keep the code of the earlier rule set.
Until the first release only one rule set exists (decision record 21).

Only ``fold`` changes a state. ``decide`` is level-triggered: every call returns the decisions due by the state, and
nothing once the stage's own decisions have been folded. A decision is decided at ``in_seq`` and becomes effective at
its own sequence; other commits may lie between, and a decision made void by these commits is due again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_type_hints

from msgspec import Struct, field

from muster.core.docket import Docket, judged
from muster.core.observed.seen import OBSERVATIONS, Seen, about
from muster.events.base import Decision, Event
from muster.events.envelope import MAX_EVENTS, Stored, UnknownEventError, cut
from muster.events.facts import ChildGone, ChildObserved, KindsConfigured, ObjectGone, Synced, SyncStarted
from muster.events.system import Genesis, LogNearlyFull, RulesetActivated
from muster.model.keys import Position

# --- rule sets --------------------------------------------------------------------------------------------------------


OLDEST = 1
NEWEST = 1
"""The newest rule set this build can decide by."""


class UnknownRulesetError(UnknownEventError):
    """The log has put unknown rules in force: this build must not decide by other rules."""

    def __init__(self, number: int, newest: int) -> None:
        super().__init__(["ruleset_activated"])
        self.args = (f"rule set {number} is in force and this build knows rule sets up to {newest}; upgrade it",)


# --- deadlines --------------------------------------------------------------------------------------------------------


class DueTimes(Struct):
    """Log times (ms) by key."""

    at: dict[str, int] = field(default_factory=dict)
    order: list[tuple[int, str]] = field(default_factory=list)
    """sorted (log time, key)"""

    def put(self, key: str, at: int) -> None:
        """Set the time of a key, in place of an earlier time; 0: no time."""
        before = self.at.pop(key, None)
        if before is not None:
            del self.order[bisect_left(self.order, (before, key))]
        if at:
            self.at[key] = at
            insort(self.order, (at, key))

    def first(self) -> int | None:
        """The first of all."""
        return self.order[0][0] if self.order else None

    def after(self, now: int) -> Iterator[tuple[int, str]]:
        """(log time, key) of the times to come, in order."""
        for at in range(bisect_right(self.order, (now + 1,)), len(self.order)):
            yield self.order[at]


# --- tables -----------------------------------------------------------------------------------------------------------


_Value = TypeVar("_Value")


def put(table: dict[str, _Value], key: str, value: _Value | None) -> None:
    """Keep a value under a key; nothing for None."""
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def mark(table: dict[str, None], key: str, wanted: object) -> None:
    """Keep a key exactly while it is wanted."""
    if wanted:
        table[key] = None
    else:
        table.pop(key, None)


def leave_out(key: str, *tables: dict[str, Any]) -> None:
    """Forget a key in each of the tables."""
    for table in tables:
        table.pop(key, None)


# --- stage ------------------------------------------------------------------------------------------------------------


MAX_DECISIONS = MAX_EVENTS
"""``decide`` stops after this many decisions; the rest stays due and follows in the next commit."""

REQUIRED_KINDS = ("elasticquotatrees", "nodes", "pods", "priorityclasses", "rayclusters", "rayjobs")
"""Kinds to be listed once before any admission, grant or eviction, until KindsConfigured names others."""


SHOWN_KINDS = ("queues", "queueunits")
"""Kinds watched for presentation only: nothing waits for their list."""


class Violation(Struct, frozen=True):
    """A broken invariant: the number in docs/reference/invariants.md and the error, with values."""

    invariant: str
    detail: str


class StageState(Struct):
    """The state common to all stages: the folded position, log time, and whether the cluster is fully known.

    A state is plain data throughout (structs, dicts, lists, texts, integers): the snapshot is the encoded state, and a
    reader rebuilds nothing.
    """

    seq: int = 0
    now: int = 0
    """Log time, ms since the epoch: the running maximum of the commits' ``at``."""
    generation: int = 0
    log_id: str = ""
    ruleset: int = 1
    unsynced: dict[str, None] = field(default_factory=lambda: dict.fromkeys(REQUIRED_KINDS))
    """Required kinds not listed yet in their current watch epoch."""
    required: dict[str, None] = field(default_factory=lambda: dict.fromkeys(REQUIRED_KINDS))
    """Kinds to be listed before any admission."""
    kinds: tuple[str, ...] = ("RayJob",)
    """The enabled workload kinds."""
    definitions: dict[str, str] = field(default_factory=dict)
    """{kind: definition as JSON} of the kinds that a ConfigMap defines."""
    listed: dict[str, int] = field(default_factory=dict)
    """Kinds listed in their current watch epoch -> resourceVersion of the newest list, 0 where unknown."""

    seen: Seen = field(default_factory=Seen)
    """The newest counted version of every object known to the stage."""
    children_seen: Seen = field(default_factory=Seen)
    """The same for children alone: a former child is a workload from the same version on, and the other way round."""
    closing: bool = False
    """The log is nearly full: only decisions that free something are made."""
    docket: Docket = field(default_factory=Docket)
    """The memory of the judge of the log."""

    @property
    def synced(self) -> bool:
        return not self.unsynced

    @property
    def admitting(self) -> bool:
        """Whether new jobs may be admitted: the cluster is fully known and the log has room."""
        return not self.unsynced and not self.closing


S = TypeVar("S", bound=StageState)
D = TypeVar("D", bound=Decision)
Arm = Callable[[Any, Position, Any], None]


class Stage(Generic[S]):
    """One decider. Synchronous, without clock, randomness, I/O, logging or environment.

    A stage without decisions has only folds.
    """

    name: ClassVar[str]
    kept: ClassVar[type[Any]]
    """The class of the state."""
    newest_ruleset: ClassVar[int | None] = None
    """The newest rule set known to the stage; None for a stage without rules."""
    judges_versions: ClassVar[bool] = False
    """Whether the stage drops outdated facts itself. False: its folds receive the newest fact of an object only."""

    def initial(self) -> S:
        """The state before the first commit."""
        state: S = self.kept()
        return state

    def arms(self) -> Mapping[type[Event], Arm]:
        """{event type: change of the state}; absent event types change nothing in this stage."""
        return arms_of(self)

    def decide(self, state: S) -> list[Decision]:
        """The decisions due now, at most MAX_DECISIONS; each decision is valid after the decisions before."""
        return []

    def next_deadline(self, state: S) -> int | None:
        """The log time (ms) at which ``decide`` may return more than now, without any other event."""
        return None

    def check(self, state: S) -> list[Violation]:
        """The invariants this state breaks; empty when all is well."""
        return []


class Folder:
    """Folds commits into one stage's state: the same few lines for every runner."""

    def __init__(self, stage: Stage[Any]) -> None:
        arms = dict(stage.arms())
        self._passed: Callable[[Any], None] | None = getattr(stage, "time_passed", None)
        self._settle: Callable[[Any], None] | None = getattr(stage, "settle", None)
        self._newest = stage.newest_ruleset
        shared: dict[type[Event], Arm] = {
            Genesis: _genesis,
            RulesetActivated: self._ruleset,
            LogNearlyFull: _nearly_full,
            SyncStarted: _sync_started,
            Synced: _synced,
            KindsConfigured: _kinds_configured,
        }
        for kind, arm in shared.items():
            arms[kind] = in_turn(arm, arms[kind]) if kind in arms else arm
        if not stage.judges_versions:
            arms = {kind: _of_newest(kind, arm) for kind, arm in arms.items()}
        self._arms = {kind: parts_of(arm) for kind, arm in arms.items()}

    def fold(self, state: StageState, stored: Stored) -> Stored:
        """Judge one commit and fold the commit; returns the commit as counted.

        The sequence of the commit must follow ``state.seq``.
        """
        seq = stored.seq
        if seq != state.seq + 1:
            raise AssertionError(f"fold of sequence {seq} onto a state at {state.seq}: a commit is missing or repeated")
        stored = judged(state.docket, state.log_id, state.generation, stored)
        self.hear(state, stored)
        return stored

    def hear(self, state: StageState, stored: Stored) -> None:
        """Fold a counted commit; ``state.docket`` includes the commit already."""
        self.move_on(state, stored)
        arms, seq, now = self._arms, stored.seq, state.now
        for index, event in enumerate(stored.commit.events):
            parts = arms.get(type(event))
            if parts is not None:
                at = Position(seq, index, now)
                for arm in parts:
                    arm(state, at, event)
        if self._settle is not None:
            self._settle(state)

    def hears(self, kinds: Collection[type[Event]]) -> bool:
        """Whether a commit with such events changes more in the stage than sequence and time."""
        return self._passed is not None or any(kind in self._arms for kind in kinds)

    def move_on(self, state: StageState, stored: Stored) -> None:
        """Move the state to this commit: the only effect of a commit without events for the stage."""
        state.seq = stored.seq
        if stored.commit.at > state.now:
            state.now = stored.commit.at
            if self._passed is not None:
                self._passed(state)

    def _ruleset(self, state: StageState, _at: Position, event: RulesetActivated) -> None:
        if self._newest is not None and event.number > self._newest:
            raise UnknownRulesetError(event.number, self._newest)
        state.ruleset = max(state.ruleset, event.number)


def next_commit(stage: Stage[S], state: S) -> list[Event]:
    """The events of the stage's next commit: the first due decisions, up to the size of one commit, or none."""
    due = stage.decide(state)
    return cut(list[Event](due)) if due else []


def folds_in(*sources: Any) -> dict[type[Event], list[Callable[[Any, Position, Any], Any]]]:
    """{event type: folds}: public functions of (state, at, event) of modules, and such methods of other objects.

    The annotation of a fold names its event types; the folds of one type are in the order of definition.
    """
    folds: dict[type[Event], list[Callable[[Any, Position, Any], Any]]] = {}
    for source in sources:
        home: object = source if isinstance(source, ModuleType) else type(source)
        for name, kinds in _named_folds(home):
            for kind in kinds:
                folds.setdefault(kind, []).append(getattr(source, name))
    return folds


@cache
def _named_folds(source: Any) -> list[tuple[str, tuple[type[Event], ...]]]:
    """(name, event types) of each fold of a source. The result is constant per source, and slow to compute."""
    folds: list[tuple[str, tuple[type[Event], ...]]] = []
    for name, function in _functions(source).items():
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        if names[-2:] in _FOLDS:
            kind = get_type_hints(function)[names[-1]]
            folds.append((name, get_args(kind) or (kind,)))
    return folds


def _functions(source: ModuleType | type) -> dict[str, FunctionType]:
    """The public functions of a module; the methods of a class."""
    if isinstance(source, ModuleType):
        own = ((name, value) for name, value in vars(source).items() if not name.startswith("_"))
        return {
            name: value
            for name, value in own
            if isinstance(value, FunctionType) and value.__module__ == source.__name__
        }
    methods = (item for kind in reversed(source.mro()) for item in vars(kind).items())
    return {name: method for name, method in methods if isinstance(method, FunctionType)}


_FOLDS = [(at, event) for at in ("at", "_at") for event in ("event", "_event")]


def arms_of(*sources: Any) -> dict[type[Event], Arm]:
    """The folds of each event type, one after the other."""
    return {kind: in_turn(*arms) for kind, arms in folds_in(*sources).items()}


def in_turn(*arms: Arm) -> Arm:
    """All arms, one after the other."""
    return _InTurn(tuple(part for arm in arms for part in parts_of(arm)))


def parts_of(arm: Arm) -> tuple[Arm, ...]:
    """The parts of an arm."""
    return arm.parts if isinstance(arm, _InTurn) else (arm,)


class _InTurn:
    def __init__(self, parts: tuple[Arm, ...]) -> None:
        self.parts = parts

    def __call__(self, state: Any, at: Position, event: Any) -> None:
        for part in self.parts:
            part(state, at, event)


def _of_newest(kind: type[Event], arm: Arm) -> Arm:
    """An arm for facts about an object hears only new facts."""
    child = kind in (ChildObserved, ChildGone)

    def observed(state: StageState, at: Position, event: Event) -> None:
        ref, rv = about(event)
        if (state.children_seen if child else state.seen).newer(ref.uid, rv):
            arm(state, at, event)

    def gone(state: StageState, at: Position, event: ObjectGone) -> None:
        if (state.children_seen if child else state.seen).end(event, at.at):
            arm(state, at, event)

    return observed if kind in OBSERVATIONS else gone if issubclass(kind, ObjectGone) else arm


def _genesis(state: StageState, _at: Position, event: Genesis) -> None:
    state.log_id = event.log_id
    state.generation = event.generation
    state.closing = False


def _nearly_full(state: StageState, _at: Position, _event: LogNearlyFull) -> None:
    state.closing = True


def _sync_started(state: StageState, _at: Position, event: SyncStarted) -> None:
    for kind in event.kinds:
        state.listed.pop(kind, None)
        if kind not in SHOWN_KINDS:
            # A kind not required yet is being enabled.
            state.unsynced[kind] = None


def _synced(state: StageState, _at: Position, event: Synced) -> None:
    state.listed[event.kind] = event.rv
    state.unsynced.pop(event.kind, None)


def _kinds_configured(state: StageState, _at: Position, event: KindsConfigured) -> None:
    """Newly required kinds must be listed, unless listed already; kinds no longer required delay no admission."""
    for kind in event.required:
        if kind not in state.required and kind not in state.listed:
            state.unsynced[kind] = None
    state.kinds, state.required = event.kinds, dict.fromkeys(event.required)
    state.definitions = event.definitions
    for kind in [kind for kind in state.unsynced if kind not in state.required]:
        del state.unsynced[kind]


def first(items: Iterable[D], count: int = MAX_DECISIONS) -> list[D]:
    """The first decisions of a stream, without computing more of the stream."""
    return list(islice(items, count))
