"""A rule set is put in force by the log, once all live replicas know it; before that, going back is safe."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from kit.audits import audit
from kit.rulesets import NEXT, NEXT_BUILD, installed
from kit.shell import Cell, play
from kit.story import quota_tree, rayjob
from kit.traffic import TEAMS, tree
from muster.core.cell.deciders import DECIDERS
from muster.core.stage import Folder, UnknownRulesetError
from muster.events.decisions import CandidatesProposed
from muster.events.envelope import Commit, Stored
from muster.events.system import RulesetActivated
from muster.runtime.replaying.canonical import difference
from muster.runtime.replaying.replay import replay


async def three_jobs(cell: Cell, name: str) -> None:
    """At once, in three queues, with room for all of them."""
    for team in TEAMS:
        cell.create(rayjob(f"{name}-{team}", team, cpu="1", memory="1G", replicas=1, runtime="1s", ttl_s=1))
    await cell.until(
        lambda: all(state == "Complete" for job, state in cell.jobs().items() if job.startswith(name)), limit_s=600
    )


def upgrade(cell: Cell, *services: str) -> None:
    """The next processes of these are of the version that knows rule set 2."""
    for service in services:
        cell.builds[service] = NEXT_BUILD[service]
        cell.processes[service].kill()


def activations(cell: Cell) -> list[int]:
    return [
        stored.seq for stored in cell.commits() for event in stored.commit.events if isinstance(event, RulesetActivated)
    ]


def most_proposed(commits: list[Stored]) -> int:
    sizes = [
        len(event.candidates)
        for stored in commits
        for event in stored.commit.events
        if isinstance(event, CandidatesProposed)
    ]
    return max(sizes, default=0)


def judged(cell: Cell) -> None:
    commits = cell.commits()
    assert not audit(commits).violations
    done = Counter(cell.jobs().values())
    assert set(done) == {"Complete"}
    report = replay(commits, silences=False)
    assert not report.divergences, report.divergences[0]


def test_it_is_in_force_once_the_last_replica_knows_it() -> None:
    cell = Cell()
    cell.ruleset = NEXT

    async def scene(cell: Cell) -> None:
        cell.create(quota_tree(tree(6)))
        await three_jobs(cell, "before")
        *others, last = DECIDERS
        upgrade(cell, *others)
        await asyncio.sleep(120)
        await three_jobs(cell, "mixed")
        assert activations(cell) == [], f"{last} does not know it"
        upgrade(cell, last)
        await cell.until(lambda: bool(activations(cell)), limit_s=120)
        await three_jobs(cell, "after")

    play(cell, scene)
    (at,) = activations(cell)
    commits = cell.commits()
    assert {stored.commit.ruleset for stored in commits if stored.commit.in_seq >= at} == {NEXT}, "all switched there"
    assert {stored.commit.ruleset for stored in commits if stored.commit.in_seq < at} == {1}
    assert most_proposed([stored for stored in commits if stored.seq <= at]) == 3
    assert most_proposed([stored for stored in commits if stored.commit.in_seq >= at]) == 1
    with installed(NEXT_BUILD):
        judged(cell)
    with pytest.raises(UnknownRulesetError, match="rule set 2 is in force and this build knows rule sets up to 1"):
        replay(commits)


def test_going_back_before_it_is_in_force_changes_nothing() -> None:
    cell = Cell()
    cell.ruleset = NEXT

    async def scene(cell: Cell) -> None:
        cell.create(quota_tree(tree(6)))
        await three_jobs(cell, "before")
        upgrade(cell, "queue_sorter", "quota_accountant")
        await asyncio.sleep(60)
        await three_jobs(cell, "mixed")
        for service in ("queue_sorter", "quota_accountant"):
            cell.builds[service] = DECIDERS[service]
            cell.processes[service].kill()
        await asyncio.sleep(60)
        await three_jobs(cell, "back")

    play(cell, scene)
    assert activations(cell) == []
    assert cell.ended == []
    judged(cell)
    with installed(NEXT_BUILD):
        judged(cell)


def test_an_old_version_that_comes_back_after_it_stops_and_says_so() -> None:
    cell = Cell()
    cell.ruleset = NEXT

    async def scene(cell: Cell) -> None:
        cell.create(quota_tree(tree(6)))
        cell.builds |= NEXT_BUILD
        await asyncio.sleep(20)
        for service in DECIDERS:
            cell.processes[service].kill()
        await cell.until(lambda: bool(activations(cell)), limit_s=120)
        cell.builds["queue_sorter"] = DECIDERS["queue_sorter"]
        cell.processes["queue_sorter"].kill()
        await cell.until(lambda: bool(cell.ended), limit_s=120)

    play(cell, scene)
    (ended,) = cell.ended
    assert ended[0].startswith("queue_sorter")
    assert "upgrade it" in ended[1]


def test_a_log_of_the_rule_set_before_still_replays() -> None:
    cell = Cell()

    async def scene(cell: Cell) -> None:
        cell.create(quota_tree(tree(6)))
        await three_jobs(cell, "job")

    play(cell, scene)
    with installed(NEXT_BUILD):
        judged(cell)


def test_with_one_rule_changed_the_first_decision_that_differs_is_named() -> None:
    cell = Cell()

    async def scene(cell: Cell) -> None:
        cell.create(quota_tree(tree(6)))
        await three_jobs(cell, "job")

    play(cell, scene)
    commits = cell.commits()
    activated = Commit(
        commit_id="activated",
        stage="quota_accountant",
        shard="0",
        kind="input",
        at=commits[0].commit.at,
        events=(RulesetActivated(number=NEXT),),
    )
    changed = [commits[0], Stored(2, activated), *(Stored(each.seq + 1, each.commit) for each in commits[1:])]
    with installed(NEXT_BUILD):
        found, same = difference(commits, changed)
    assert found is not None
    assert found.one is not None
    assert found.other is not None
    assert (found.one.stage, found.other.stage) == ("queue_sorter", "queue_sorter")
    assert found.one.event["type"] == found.other.event["type"] == "candidates_proposed"
    assert [len(each.event["candidates"]) for each in (found.one, found.other)] == [3, 1]
    assert same == found.index > 0, "what came before is the same"


def test_what_is_in_force_never_goes_back() -> None:
    for kind in NEXT_BUILD.values():
        stage = kind()
        folder, state = Folder(stage), stage.initial()
        for seq, number in enumerate((2, 1), start=1):
            event = RulesetActivated(number=number)
            commit = Commit(
                commit_id=f"c{seq}", stage="quota_accountant", shard="0", kind="input", at=1, events=(event,)
            )
            folder.fold(state, Stored(seq, commit))
        assert state.ruleset == NEXT
