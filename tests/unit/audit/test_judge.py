"""What of a log counts: each rule broken once, the same for everybody, wherever reading begins."""

import msgspec
import pytest
from msgspec.structs import replace

from kit.doubles.log import MemoryLog
from muster.audit.judge import RIGHTS
from muster.core.cell.seats import Seat
from muster.core.docket import AHEAD_MS, KEPT, Docket, Judge
from muster.core.preemption.preemptor import Preemptor
from muster.events.base import Cause, Event
from muster.events.decisions import GangAdmitted
from muster.events.envelope import Commit, Stored, UnknownEventError, encode_commit
from muster.events.speakers import EVERY_LEADER, SPEAKERS
from muster.events.system import Genesis, LeaderStarted, TimeReached
from muster.model.keys import Ref
from muster.ports import LogIdentity
from muster.told.readmodel.model import ReadModel
from muster.told.wording import problems
from muster_tools.catalogue import emitters

ADMITTED = GangAdmitted(cause=Cause(1, 0), ref=Ref("RayJob", "ns", "n", "u"), attempt=1, queue="q")
BRIDGE = "autoscaler_bridge"


def commit(stage: str = BRIDGE, shard: str = "0", *events: Event, **changes: object) -> Commit:
    made = Commit(commit_id="c", stage=stage, shard=shard, kind="input", at=1_000, events=events)
    return replace(made, **changes)


def said(stored: Stored) -> str:
    return problems.line(stored.void) if stored.void is not None else ""


class Scene:
    """A log whose bridge leads since sequence 2."""

    def __init__(self) -> None:
        self.log = MemoryLog(LogIdentity("main", "one", 1))
        self.say(commit(BRIDGE, "0", LeaderStarted(process="p")))

    def say(self, commit: Commit, seat: str = f"{BRIDGE}.0", stored_at: int = 1_000) -> None:
        self.log.write(seat, encode_commit(commit), stored_at)

    @property
    def verdicts(self) -> list[str]:
        judge = Judge(Docket())
        return [said(judge.hear(each)) for each in self.log.commits()]


def test_what_keeps_the_rules_counts() -> None:
    scene = Scene()
    scene.say(commit(BRIDGE, "0", TimeReached(at=5), epoch=2, in_seq=2))
    assert scene.verdicts == ["", "", ""]


@pytest.mark.parametrize(
    ("said", "seat", "why"),
    [
        (commit("gang_admitter", "0", ADMITTED, kind="decision"), f"{BRIDGE}.0", "gang_admitter/0 wrote it"),
        (commit(BRIDGE, "0", ADMITTED, kind="decision", epoch=2), f"{BRIDGE}.0", "may not say gang_admitted"),
        (commit(BRIDGE, "7", TimeReached(at=5)), f"{BRIDGE}.7", "no stage writes on autoscaler_bridge.7"),
        (commit("oracle", "0", TimeReached(at=5)), "oracle.0", "no stage writes on oracle.0"),
        (commit(BRIDGE, "0", TimeReached(at=5), epoch=1), f"{BRIDGE}.0", "its epoch is 1, and that of its seat is 2"),
        (commit(BRIDGE, "0", TimeReached(at=5)), f"{BRIDGE}.0", "its epoch is 0"),
        (commit(BRIDGE, "0", epoch=2, at=1_000 + AHEAD_MS + 1), f"{BRIDGE}.0", "its clock was 60001 ms ahead"),
        (commit(BRIDGE, "0", epoch=2, in_seq=3), f"{BRIDGE}.0", "decided on 3, which is not before it"),
        (commit(BRIDGE, "0", epoch=2, in_seq=1, prefix="00" * 8), f"{BRIDGE}.0", "decided on another log: at 1"),
        (commit("genesis", "0", Genesis(log_id="x", generation=1)), "genesis.0", "the genesis of another log"),
        (
            commit("genesis", "0", Genesis(log_id="x", generation=2, parent="one")),
            "genesis.0",
            "the genesis of another log",
        ),
    ],
)
def test_what_breaks_a_rule_is_void_and_has_no_events(said: Commit, seat: str, why: str) -> None:
    scene = Scene()
    scene.say(said, seat)
    assert why in scene.verdicts[2]
    stage, _, shard = seat.partition(".")
    found = Seat(ReadModel())
    folded = [found.fold(each) for each in scene.log.commits()]
    assert (folded[2].commit.stage, folded[2].commit.shard, folded[2].commit.events) == (stage, shard, ())
    assert found.state.now == 1_000


@pytest.mark.parametrize(
    "body", [b"", b'{"commit_id":"x"}', b"\xff\n", b"[" * 100_000], ids=["", "json", "raw", "deep"]
)
def test_bytes_that_are_no_commit_are_void(body: bytes) -> None:
    scene = Scene()
    scene.log.write(f"{BRIDGE}.0", body)
    assert "not a commit" in scene.verdicts[2]


def test_an_unknown_event_of_the_rightful_leader_stops_this_build() -> None:
    scene = Scene()
    said = encode_commit(commit(BRIDGE, "0", epoch=2))[:-1] + b',"events":[{"type":"job_teleported"}]}'
    scene.log.write(f"{BRIDGE}.0", said)
    with pytest.raises(UnknownEventError, match="job_teleported at sequence 3: this build is older than the log"):
        assert scene.verdicts


def test_an_unknown_event_of_anybody_else_is_void() -> None:
    scene = Scene()
    said = encode_commit(commit(BRIDGE, "0", epoch=9))[:-1] + b',"events":[{"type":"job_teleported"}]}'
    scene.log.write(f"{BRIDGE}.0", said)
    assert "its epoch is 9" in scene.verdicts[2]


def test_every_reader_comes_to_the_same_verdicts_wherever_it_begins() -> None:
    scene = Scene()
    good = commit(BRIDGE, "0", TimeReached(at=5), epoch=2, in_seq=2)
    for number in range(4):
        scene.say(good)
        scene.log.write(f"{BRIDGE}.0", b"junk %d" % number)
        scene.say(replace(good, prefix="ab" * 8))
    commits, states = scene.log.commits(), []
    for begin in range(len(commits)):
        one, other = Seat(Preemptor()), Seat(Preemptor())
        for each in commits[:begin]:
            one.fold(each)
        other.state = msgspec.msgpack.decode(msgspec.msgpack.encode(one.state), type=type(one.state))
        voids = [said(other.fold(each)) for each in commits[begin:]]
        assert voids == scene.verdicts[begin:]
        states.append(msgspec.msgpack.encode(other.state))
    assert len(set(states)) == 1


def test_a_commit_carries_the_hash_of_what_its_writer_had_folded() -> None:
    scene, judge = Scene(), Judge(Docket())
    for _ in range(KEPT + 10):
        scene.say(commit(BRIDGE, "0", epoch=2, in_seq=2))
    for stored in scene.log.commits():
        judge.hear(stored)
    now = len(scene.log.commits())
    kept = judge.docket.hash_at(now - 5, now)
    assert kept
    assert kept != judge.docket.hash_at(now - 6, now)
    assert judge.docket.hash_at(3, now) == ""
    scene.say(commit(BRIDGE, "0", epoch=2, in_seq=now - 5, prefix=kept))
    scene.say(commit(BRIDGE, "0", epoch=2, in_seq=now - 6, prefix=kept))
    assert [bool(judge.hear(stored).void) for stored in scene.log.commits()[now:]] == [False, True]


def test_the_table_of_speakers_is_what_the_code_says() -> None:
    said: dict[str, set[str]] = {}
    for seat, rights in RIGHTS.items():
        for kind in (*rights["input"], *rights["decision"]):
            said.setdefault(str(kind.__struct_config__.tag), set()).add(seat.partition(".")[0])
    common = {str(kind.__struct_config__.tag) for kind in EVERY_LEADER}
    names = {"the process that creates the log": "genesis", "quota_accountant's runner": "quota_accountant"}
    for tag, owners in emitters().items():
        if tag == "placement_chosen":
            assert said[tag] == {"gang_admitter"}  # process.py makes it for the admitter's leader
        elif tag not in common:
            assert said[tag] == {names.get(owner, owner) for owner in owners}, tag
    assert {stage for each in common for stage in said[each]} == {*SPEAKERS, "watcher"}


def test_a_commit_of_memory_alone_is_not_judged() -> None:
    judge = Judge(Docket())
    assert judge.hear(Stored(1, commit("oracle", "0", ADMITTED))).void is None
