"""The judge of a log: the counted part of a stored message, the same for every reader.

The judge has two pure halves. This half needs the message alone: the message is readable, the body names the stage and
the shard of the subject, and the stage may write each of the events. The other half (``core.docket``) needs the earlier
log, and runs before any fold: the epoch, the generation, the clock, and the attested prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from muster.core.docket import digest_of, parts
from muster.core.reading.watched import CONFIGURING, WATCHED, Watched
from muster.events.base import Decision, Event
from muster.events.envelope import (
    Commit,
    Stored,
    UnknownEventError,
    UnreadableCommitError,
    decode_commit,
    decode_envelope,
    genesis_of,
)
from muster.events.facts import (
    ChildGone,
    ChildObserved,
    KindsConfigured,
    ObjectUnreadable,
    Synced,
    SyncStarted,
    WorkloadAbridged,
    WorkloadFinished,
    WorkloadObserved,
    WorkloadStarted,
)
from muster.events.speakers import EVERY_LEADER, SPEAKERS
from muster.events.system import Genesis, LeaderStarted
from muster.model.problem import FieldProblem, problem

Rights = Mapping[str, frozenset[type[Event]]]
"""{kind of commit: allowed events}"""


def _rights() -> Iterator[tuple[str, Rights]]:
    yield "genesis.0", _by_kind((Genesis,))
    for stage, spoken in SPEAKERS.items():
        yield f"{stage}.0", _by_kind((*EVERY_LEADER, *spoken))
    for shard, row in WATCHED.items():
        yield f"watcher.{shard}", _by_kind((*EVERY_LEADER, *_watched(row)))


def _watched(row: Watched) -> Iterator[type[Event]]:
    """The events of the shard of a resource."""
    yield from (SyncStarted, Synced, ObjectUnreadable, row.observed, row.gone)
    if row.shard == CONFIGURING:
        yield KindsConfigured
    if row.observed is WorkloadObserved:
        yield from (WorkloadAbridged, WorkloadStarted, WorkloadFinished, ChildObserved, ChildGone)


def _by_kind(types: tuple[type[Event], ...]) -> Rights:
    decided = frozenset(kind for kind in types if issubclass(kind, Decision))
    return {"decision": decided, "input": frozenset(types) - decided}


RIGHTS: Mapping[str, Rights] = dict(_rights())
"""{stage.shard: allowed events}; besides these only shards of kinds that a ConfigMap defines exist."""

_DEFINED = re.compile(r"watcher\.[a-z][a-z0-9]{0,62}")
"""The shard of such a kind, by its resource: it begins with its leader. A message alone says not whether the kind was
defined; the users of NATS may publish on subjects that are named, and on no other (deploy/nats/accounts.conf)."""
_OF_DEFINED = RIGHTS["watcher.rayjobs"]


def heard(seq: int, subject: str, body: bytes, stored_at: int = 0, trace: str = "") -> Stored:
    """A message of a log as a stored commit, void where the message alone shows an error.

    ``subject``: ``generation.stage.shard``; ``stored_at``: the broker's time, ms since the epoch.
    """
    seat = parts(subject)[1]
    unknown: tuple[str, ...] = ()
    why: FieldProblem | None
    try:
        commit = decode_commit(body)
    except UnreadableCommitError as err:
        commit, why = _nothing(seat), problem("", "not_a_commit", said=str(err))
    except UnknownEventError as err:
        commit, unknown = _of_envelope(body), tuple(err.tags)
        why = _misplaced(seat, commit)
    else:
        why = _misplaced(seat, commit)
    digest = digest_of(seq, subject, body)
    if why is not None:
        return Stored(seq, _nothing(seat), trace, subject, stored_at, body, digest, why)
    return Stored(seq, commit, trace, subject, stored_at, body, digest, None, unknown)


def overtakes(other: Stored, mine: Commit) -> bool:
    """Whether a commit on a leader's own subject ends the leader's term; a void commit does not.

    A commit under another epoch than ``mine`` is void too: ``mine`` is the newest leader's epoch, unless another leader
    begins.
    """
    if other.void:
        return False
    return _begins(other.commit) or not mine.epoch or other.commit.epoch == mine.epoch


def _begins(commit: Commit) -> bool:
    return any(isinstance(event, LeaderStarted) for event in commit.events)


def _misplaced(seat: str, commit: Commit) -> FieldProblem | None:
    rights = RIGHTS.get(seat)
    if rights is None and (commit.epoch or _begins(commit)) and _DEFINED.fullmatch(seat):
        rights = _OF_DEFINED
    if rights is None:
        return problem("", "no_such_seat", seat=seat)
    if f"{commit.stage}.{commit.shard}" != seat:
        return problem("", "other_writer", writer=f"{commit.stage}/{commit.shard}")
    allowed = rights[commit.kind]
    if not allowed.issuperset(map(type, commit.events)):
        tags = {str(type(event).__struct_config__.tag) for event in commit.events if type(event) not in allowed}
        return problem("", "not_its_event", seat=seat, events=tuple(sorted(tags)), kind=commit.kind)
    return None


def _nothing(seat: str) -> Commit:
    stage, _, shard = seat.partition(".")
    return Commit(commit_id="", stage=stage, shard=shard, kind="input", at=0)


def _of_envelope(body: bytes) -> Commit:
    """A commit with events that this build does not know: of those that it knows, the genesis counts."""
    envelope, genesis = decode_envelope(body), genesis_of(body)
    return Commit(
        commit_id=envelope.commit_id,
        stage=envelope.stage,
        shard=envelope.shard,
        kind=envelope.kind,
        at=envelope.at,
        epoch=envelope.epoch,
        in_seq=envelope.in_seq,
        ruleset=envelope.ruleset,
        prefix=envelope.prefix,
        events=() if genesis is None else (genesis,),
    )
