"""What was used, lost and waited for: a judge that adds up every charge and waiting job at every commit agrees."""

import pytest
from msgspec.structs import replace

from kit import facts
from kit.histories import files
from kit.scenario import Play
from muster.core.stage import Folder
from muster.events.envelope import Stored
from muster.events.facts import WorkloadFinished, WorkloadStarted
from muster.model.resources import Vector, add_into
from muster.runtime.logkeeping.snapshotting import decode_state, encode_state
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.readmodel.usage import Adding, By, Sums, next_month
from muster.told.readmodel.usage import by as added_by

HOUR = 3_600_000
FOREVER = 1 << 60
HISTORIES = (
    "demo-kai",
    "demo-teams",
    "kai-gives-back",
    "lost-log",
    "philly-faults",
    "ray-gives-back",
    "ray-grows",
    "ray-replicas-driven",
    "scenario-standalone-pods",
    "tree-preempt",
    "tree-reclaim",
    "turmoil-kai",
    "turmoil-tree",
    "turmoil-two-forests",
)


def found(log: list[Stored], by: By = "queue", begin: int = 0, end: int = FOREVER) -> dict[str, Sums]:
    state, folder = ReadState(), Folder(ReadModel())
    usage = Adding(state, begin, end)
    for stored in log:
        folder.fold(state, stored)
        usage.folded(stored)
    return added_by(usage.account.close(max(state.now, end % FOREVER)), by)


def added(log: list[Stored], begin: int = 0, end: int = FOREVER) -> tuple[dict[str, Vector], dict[str, Vector]]:
    """(used, waited) by queue: the same by brute force."""
    state, folder = ReadState(), Folder(ReadModel())
    used: dict[str, Vector] = {}
    waited: dict[str, Vector] = {}
    for stored in log:
        before = [(used, charge.queue, dict(charge.request)) for charge in state.queues.ledger.charges.values()]
        before += [
            (waited, job.queue, dict(job.demand.request))
            for uid, job in state.queues.jobs.items()
            if job.status != "charged" and uid in state.queues.workloads and uid not in state.queues.ledger.charges
        ]
        since = state.now
        folder.fold(state, stored)
        ms = min(state.now, end) - max(since, begin)
        for sums, queue, amounts in before if ms > 0 else ():
            add_into(sums.setdefault(queue, {}), amounts, ms)
    return used, waited


@pytest.mark.parametrize("name", HISTORIES)
def test_a_judge_that_adds_up_everything_agrees(name: str) -> None:
    log = files.read(name)
    first, last = log[0].commit.at, max(stored.commit.at for stored in log)
    part = (first + (last - first) // 3, first + 2 * (last - first) // 3)
    for begin, end in ((0, FOREVER), part):
        sums = found(log, begin=begin, end=end)
        used, waited = added(log, begin, end)
        assert {key: each.used for key, each in sums.items() if each.used} == used
        assert {key: each.waited for key, each in sums.items() if each.waited} == waited
        for each in sums.values():
            assert all(0 <= amount <= each.used[resource] for resource, amount in each.lost.items())


def stirring(sums: dict[str, Sums]) -> dict[str, Sums]:
    return {key: each for key, each in sums.items() if each != Sums()}


@pytest.mark.parametrize("name", ("demo-teams", "kai-gives-back", "philly-faults", "tree-reclaim", "turmoil-kai"))
def test_the_read_model_keeps_the_sums_of_each_month(name: str) -> None:
    """A history that lies across the end of a month: each month is the one that is added up from the log by itself."""
    log = files.read(name)
    middle = log[2 * len(log) // 3].commit.at
    later = next_month(middle) - middle
    log = [replace(stored, commit=replace(stored.commit, at=stored.commit.at + later)) for stored in log]
    turn, model = middle + later, ReadModel()
    state, folder = ReadState(), Folder(model)
    for number, stored in enumerate(log):
        if number == len(log) // 2:  # A snapshot in between changes nothing.
            state, folder = decode_state(encode_state(state), ReadState), Folder(ReadModel())
        folder.fold(state, stored)
    assert [ended.end for ended in state.usage.months][-1] == turn == state.usage.account.begin
    ended, account = state.usage.months[-1], state.usage.account
    until = [stored for stored in log if stored.commit.at < turn]
    for by in ("queue", "owner"):
        assert stirring(added_by(ended.sums, by)) == stirring(found(until, by, ended.begin, turn))  # type: ignore[arg-type]
    assert stirring(added_by(account.close(state.now), "queue")) == stirring(found(log, begin=turn))


def played(*lines: str) -> list[Stored]:
    play = Play()
    for line in ("tree", "synced", *lines):
        play.line(line)
        play.settle()
        verb, name, *more = [*line.split(), "", ""]
        if verb == "runs":
            play.bench.facts(WorkloadStarted(ref=facts.job_ref(name)))
        if verb == "finishes":
            outcome = more[0] or "succeeded"
            play.bench.facts(WorkloadFinished(ref=facts.job_ref(name), outcome=outcome))  # type: ignore[arg-type]
    return play.bench.log


UP = ("job one", "resumed one", "cluster one", "runs one", "time +3600s")
DOWN = ("cluster-gone one", "gone one")


def hours(log: list[Stored], by: By = "queue") -> dict[str, tuple[int, int, int]]:
    """Core-hours that were used, lost and waited for."""
    return {
        key: tuple(vector.get("cpu", 0) // (1000 * HOUR) for vector in (each.used, each.lost, each.waited))  # type: ignore[misc]
        for key, each in found(log, by).items()
    }


VIDEO = "root/algorithm/video"


def test_a_run_that_succeeds_loses_nothing_and_one_that_fails_all_of_it() -> None:
    assert hours(played(*UP, "finishes one", *DOWN)) == {VIDEO: (12, 0, 0)}
    assert hours(played(*UP, "finishes one failed", *DOWN)) == {VIDEO: (12, 12, 0)}


def test_a_run_that_is_evicted_is_lost_and_the_next_wait_counts() -> None:
    log = played(*UP, "suspends one", "cluster-gone one", "settles one")
    assert hours(log)[VIDEO][:2] == (12, 12)


def test_a_job_that_waits_counts_by_what_it_asks_for() -> None:
    assert hours(played("job one", "job two", "time +7200s", "job text/other cpu=1"))[VIDEO] == (24, 0, 24)


def test_by_owner_those_of_none_are_one_line() -> None:
    assert set(found(played(*UP), "owner")) == {""}


@pytest.mark.parametrize("after", [("time +10800s", *DOWN), ("time +10800s", "job text/other cpu=1")])
def test_a_leaf_that_moves_to_another_parent_takes_no_use_and_no_loss_along(after: tuple[str, ...]) -> None:
    """One hour under the former parent and three under the next: each path has what was used, and lost, under it."""
    play = Play()
    leaf = facts.node("video", {"cpu": 12}, {"cpu": 12}, ("video",))

    def tree(parent: str) -> None:
        tops = [facts.node(name, {"cpu": 12}, {"cpu": 12}, children=(leaf,) * (name == parent)) for name in ("a", "b")]
        play.bench.facts(facts.tree(facts.node("root", {"cpu": 24}, {"cpu": 24}, children=tuple(tops))))
        play.settle()

    def lines(*lines: str) -> None:
        for line in lines:
            play.line(line)
            play.settle()

    tree("a")
    lines("synced", "job one", "resumed one", "cluster one", "runs one")
    play.bench.facts(WorkloadStarted(ref=facts.job_ref("one")))
    lines("time +3600s")
    tree("b")
    lines(*after)
    lost = (12, 36) if after[-1] == DOWN[-1] else (0, 0)
    log = play.bench.log
    sums = found(log)
    assert {key: each.used for key, each in sums.items() if each.used} == added(log)[0]
    assert hours(log)["root/a/video"][:2] == (12, lost[0])
    assert hours(log)["root/b/video"][:2] == (36, lost[1])
