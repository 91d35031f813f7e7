"""Each reader hears in full what the log has in short, wherever it begins; what cannot be completed is void."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kit import facts
from kit.depth import examples
from kit.doubles.log import MemoryLog
from kit.generated import values
from muster.core import abridging
from muster.core.abridging import abridged
from muster.core.docket import Docket, Judge
from muster.events.base import Event
from muster.events.envelope import Commit, Stored, encode_commit
from muster.events.facts import WorkloadAbridged, WorkloadGone, WorkloadObserved
from muster.events.system import LeaderStarted
from muster.model.keys import Ref
from muster.model.workload import Workload
from muster.ports import LogIdentity
from muster.told.wording import problems

SEAT = "watcher.rayjobs"
REFS = [Ref("RayJob", "video", f"job-{number}", f"uid-{number}") for number in range(5)]
BASES = ["", "one", "two"]


class Shard:
    """A leader of the shard that watches RayJobs, and a reader from the first commit on."""

    def __init__(self) -> None:
        self.log = MemoryLog(LogIdentity("main", "one", 1))
        self.reader = Judge(Docket())
        self.epoch = 0
        self.heard: list[Stored] = []
        self._hear()

    def leads(self) -> None:
        self._write((LeaderStarted(process="p"),), epoch=0)
        self.epoch = len(self.log.commits())

    def say(self, *events: Event) -> list[Event]:
        """What the log stores of them."""
        stored = abridged(self.reader.docket.newest.get(SEAT, {}), events)
        self._write(tuple(stored), epoch=self.epoch)
        return stored

    def _write(self, events: tuple[Event, ...], epoch: int) -> None:
        made = Commit(
            commit_id="c", stage="watcher", shard="rayjobs", kind="input", at=1_000, epoch=epoch, events=events
        )
        self.log.write(SEAT, encode_commit(made), 1_000)
        self._hear()

    def _hear(self) -> None:
        self.heard += [self.reader.hear(each) for each in self.log.commits()[len(self.heard) :]]


def of_jobs() -> st.SearchStrategy[Event]:
    """Anything an observation may say, of few jobs with few bases."""
    seen = st.builds(
        lambda workload, ref, basis: WorkloadObserved(workload=replace(workload, ref=ref, basis=basis)),
        values(Workload),
        st.sampled_from(REFS),
        st.sampled_from(BASES),
    )
    return st.one_of(seen, st.sampled_from(REFS).map(lambda ref: WorkloadGone(ref=ref, rv=1)))


@settings(max_examples=examples(100))
@given(st.lists(st.lists(of_jobs(), max_size=3), max_size=6), st.sets(st.integers(0, 7)), st.integers(0, 9))
def test_what_is_heard_is_what_was_said(said: list[list[Event]], taken_over: set[int], begins: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(abridging, "KEPT", 3)
        shard, late = Shard(), Judge(Docket())
        shard.leads()
        for number, events in enumerate(said):
            if number in taken_over:
                shard.leads()
            shard.say(*events)
            assert shard.heard[-1].commit.events == tuple(events)
            assert not shard.heard[-1].void
        log = shard.log.commits()
        for each in log[:begins]:
            late.hear(each)
        for_others = Judge(copy.deepcopy(late.docket), late.log_id, late.generation)
        assert [for_others.hear(each) for each in log[begins:]] == shard.heard[begins:]


def job(name: str, rv: int, **fields: object) -> WorkloadObserved:
    workload = replace(facts.job(name), basis="same", rv=rv)
    return WorkloadObserved(workload=replace(workload, **fields))


def test_only_what_differs_is_stored() -> None:
    shard = Shard()
    shard.leads()
    one, again, other = job("one", 1), job("one", 2, phase="running", suspended=False), job("two", 3)
    assert shard.say(one) == [one]
    (short,) = shard.say(again)
    assert isinstance(short, WorkloadAbridged)
    assert (short.like, encode_fields(short)) == (one.workload.ref.uid, {"rv", "phase", "suspended"})
    (short,) = shard.say(other)
    assert isinstance(short, WorkloadAbridged)
    assert (short.like, encode_fields(short)) == (one.workload.ref.uid, {"ref", "rv", "phase", "suspended"})


def encode_fields(short: WorkloadAbridged) -> set[str]:
    return {name for name in Workload.__struct_fields__ if getattr(short.but, name) is not abridging.msgspec.UNSET}


def test_a_new_leader_says_everything_in_full_once() -> None:
    shard = Shard()
    shard.leads()
    shard.say(job("one", 1))
    shard.leads()
    assert shard.say(job("one", 2)) == [job("one", 2)]


def test_what_builds_on_nothing_is_void_and_the_next_counts() -> None:
    shard, stranger = Shard(), Shard()
    for each in (shard, stranger):
        each.leads()
    stranger.say(job("one", 1))
    (short,) = stranger.say(job("one", 2, phase="running"))
    shard.say(short)
    void = shard.heard[-1].void
    assert void is not None
    uid = facts.job("one").ref.uid
    assert problems.line(void) == f"it leaves out what {SEAT} said of {uid}, and nothing of that is known"
    shard.say(job("one", 3))
    assert shard.heard[-1].commit.events == (job("one", 3),)
