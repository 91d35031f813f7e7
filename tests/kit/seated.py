"""The log of a bench as a real one holds it: every commit on a seat that may say what it says."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from muster.audit.judge import RIGHTS, heard
from muster.bus.log import Body
from muster.core.workloads.registry import KINDS
from muster.events.envelope import Stored, encode_commit
from muster.events.system import LeaderStarted

UNUSED = next(reversed([row.resource.plural for row in KINDS.values()]))
"""The shard that is given the one leader that all facts of a bench have; facts need none."""


def seated(log: Iterable[Stored]) -> Iterator[Stored]:
    """The commits, those of the watcher on shards of the resources that they are about."""
    for stored in log:
        commit = stored.commit
        if commit.stage == "watcher":
            commit = replace(commit, shard=_shard(stored), epoch=0)
        yield heard(stored.seq, f"1.{commit.stage}.{commit.shard}", encode_commit(commit))


def bodies(log: Iterable[Stored]) -> list[Body]:
    """The same as the bytes of a log."""
    return [Body(each.seq, each.body, "", each.subject) for each in seated(log)]


def _shard(stored: Stored) -> str:
    kinds = {type(event) for event in stored.commit.events}
    if LeaderStarted in kinds:
        return UNUSED
    for seat, rights in RIGHTS.items():
        stage, _, shard = seat.partition(".")
        if stage == "watcher" and shard != UNUSED and kinds <= rights["input"]:
            return shard
    raise AssertionError(f"no shard of the watcher says {sorted(each.__name__ for each in kinds)} in one commit")
