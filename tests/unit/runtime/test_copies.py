"""What is told to be wrong with the servers of NATS and their copies of the log, and which copy is rebuilt."""

import pytest
from msgspec.structs import replace

from muster.bus.servers import Copy, Server
from muster.runtime.logkeeping.comparing import compare
from muster.runtime.logkeeping.copies import Cause, Repair, ServerTrouble, judge, repairs

LOG = "MUSTER_LOG_main_2"
NAMES = ("a", "b", "c")


def copy(first: int, last: int, messages: int, leader: str = "a") -> Copy:
    return Copy(first, last, messages, leader, others=("b", "c"))


WHOLE = copy(11, 20, 10)
WELL = [
    Server(name, jetstream=True, limit=100, leader="a", peers=tuple({*NAMES} - {name}), copies={LOG: WHOLE})
    for name in NAMES
]


def but(name: str, **changes: object) -> list[Server]:
    return [replace(each, **changes) if each.name == name else each for each in WELL]


def holds(name: str, first: int, last: int, messages: int, leader: str = "a") -> list[Server]:
    return but(name, copies={LOG: copy(first, last, messages, leader)})


def causes(now: list[Server], before: list[Server] = WELL) -> set[tuple[Cause, str]]:
    return {(each.cause, each.server) for each in judge(now, before, "main")}


def test_nothing_is_wrong_where_all_say_the_same() -> None:
    assert judge(WELL, WELL, "main") == []
    assert judge([Server("only", jetstream=True, copies={LOG: WHOLE})], [], "main") == []


@pytest.mark.parametrize(
    ("now", "found"),
    [
        (WELL[1:], {("down", "a")}),
        (WELL[2:], {("down", "a"), ("down", "b"), ("no_quorum", "")}),
        (but("b", jetstream=False, copies={}), {("jetstream_off", "b")}),
        (but("b", complaint="stream: write error: no space left"), {("unwritable", "b")}),
        (but("b", used=90), {("nearly_full", "b")}),
        ([replace(each, leader="") for each in WELL], {("no_leader", "")}),
        (holds("b", 11, 20, 7), {("hole", "b")}),
        (holds("b", 14, 20, 7), {("hole", "b")}),
        (holds("b", 11, 17, 7), {("behind", "b")}),
        (holds("b", 0, 0, 0), {("behind", "b")}),
    ],
)
def test_each_trouble_is_named(now: list[Server], found: set[tuple[Cause, str]]) -> None:
    assert causes(now) == found


def test_a_stream_that_a_server_should_have_and_has_not_is_named() -> None:
    forgot = but("c", copies={})
    assert causes(forgot, forgot) == {("absent", "c")}
    assert causes(forgot, WELL) == set(), "a moment ago it had it"
    assert causes(forgot[:2], forgot[:2]) == {("down", "c")}
    assert repairs(forgot, forgot, "main", []) == [], "a copy that never comes is not waited for with fewer copies"


def test_a_stream_on_too_few_servers_is_named() -> None:
    for stream in (LOG, "KV_MUSTER_STATE_main"):
        lonely = [replace(each, copies={stream: Copy(11, 20, 10, "a")} if each.name == "a" else {}) for each in WELL]
        assert causes(lonely, lonely) == {("few", "")}


def test_what_passes_by_itself_is_not_told() -> None:
    assert causes(holds("b", 11, 17, 7), before=[]) == set()
    assert causes(but("b", complaint="stream is not current")) == set()


def test_a_log_of_which_no_copy_is_whole_is_lost() -> None:
    torn = [replace(each, copies={LOG: copy(11, 20, 9, "a")}) for each in WELL]
    assert ("lost", "") in causes(torn)
    assert ("lost", "") not in causes(torn[1:]), "the copy of a may be whole"
    assert repairs(torn, WELL, "main", []) == []


def test_other_streams_may_have_gaps() -> None:
    assert causes(but("b", copies={LOG: WHOLE, "KV_MUSTER_STATE_main": copy(1, 90, 3, "a")})) == set()


def test_a_damaged_copy_is_rebuilt_from_a_whole_one_once_every_server_is_up() -> None:
    torn = holds("a", 11, 20, 7)
    assert repairs(torn, WELL, "main", []) == [Repair(LOG, frozenset("a"), "b")]
    assert repairs(torn[:2], WELL[:2], "main", []) == []
    assert repairs(holds("b", 11, 20, 7), WELL, "main", []) == [Repair(LOG, frozenset("b"), "a")]
    other = ServerTrouble("differs", "c", LOG, 1, 15)
    assert repairs(holds("b", 11, 17, 7), WELL, "main", [other]) == [Repair(LOG, frozenset("c"), "a")]
    assert repairs(WELL, WELL, "main", []) == []


def test_what_one_server_lacks_is_missing_there_and_of_two_contents_the_majority_counts() -> None:
    same = {1: b"x", 2: b"y", 3: b"z"}
    lacks, other = {1: b"x", 3: b"z"}, {1: b"x", 2: b"?", 3: b"z"}
    assert compare(LOG, {"a": same, "b": same}, 1, 3) == []
    assert compare(LOG, {"a": same, "b": lacks, "c": lacks}, 1, 3) == [
        ServerTrouble("differs", "b", LOG, 1, 2),
        ServerTrouble("differs", "c", LOG, 1, 2),
    ]
    assert compare(LOG, {"a": same, "b": other, "c": same}, 1, 3) == [ServerTrouble("differs", "b", LOG, 1, 2)]
    assert compare(LOG, {"a": same, "b": other}, 1, 3) == [ServerTrouble("differs", "", LOG, 1, 2)]
    assert compare(LOG, {"a": lacks, "b": lacks}, 1, 3) == [ServerTrouble("lost", "", LOG, 1, 2)]
