"""Recorded histories are decided as they were, each decision and deadline of them, and keep every invariant.

Whichever hash seed the process has: pytest and each of its workers draw their own.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from kit.histories.comparing import compare
from kit.histories.files import FOLDER, names_in, path_of, read, read_lines, write, write_lines
from kit.histories.judging import judge, judged
from kit.histories.recipes import function_of
from kit.histories.table import HISTORIES, REAL
from muster.events.decisions import EvictionOrdered
from muster.events.envelope import Stored
from muster.events.registry import EVENT_TYPES
from muster.events.system import TimeReached

NAMES = names_in()


@pytest.mark.parametrize("name", NAMES)
def test_it_is_decided_as_it_was(name: str) -> None:
    wrong = judge(name)
    assert not wrong, wrong


def test_each_has_its_line_and_its_recipe_and_all_are_small() -> None:
    assert sorted(read_lines()) == NAMES
    missing = {*HISTORIES} - {*NAMES}
    assert not missing, f"tests/histories: not recorded, run `make histories ARGS='{' '.join(sorted(missing))}'`"
    assert set(NAMES) == {*HISTORIES, *REAL}
    size = sum(path.stat().st_size for path in FOLDER.glob("*.gz"))
    assert len(NAMES) > 100
    assert size < 5_000_000


def test_every_event_there_is_happens_in_some() -> None:
    found: set[str] = set()
    for name in NAMES:
        with gzip.open(path_of(name)) as file:
            found |= {tag.decode() for tag in re.findall(rb'"type":"(\w+)"', file.read())}
    assert EVENT_TYPES.keys() - found == {"priority_class_gone", "ruleset_activated"}, "there is one rule set so far"


# --- what is said of one that is not ---------------------------------------------------------------------------------


def changed(log: list[Stored], kind: type, **fields: object) -> list[Stored]:
    """The log with the first decisions of a type otherwise."""
    at, item = next(
        (at, item)
        for at, each in enumerate(log)
        for item, event in enumerate(each.commit.events)
        if type(event) is kind
    )
    events = [*log[at].commit.events]
    events[item] = replace(events[item], **fields)
    stored = replace(log[at], commit=replace(log[at].commit, events=tuple(events)))
    return [*log[:at], stored, *log[at + 1 :]]


def test_the_first_decision_that_differs_is_told_with_its_causes() -> None:
    name = "scene-released-evicted"
    log = changed(read(name), EvictionOrdered, attempt=7)
    found = judged(name, "runners", read_lines()[name].digest, log)
    for part in (
        f"history {name}: ",
        "quota_accountant at ",
        "attempt\n        was 7\n        is  1",
        "what caused it, the newest first:",
        "preemptor PreemptionProposed RayJob a/owed",
        "watcher WorkloadObserved",
        "what was told of a/owed before:",
        f"make histories ARGS={name}",
        "which decision changed, and why",
    ):
        assert part in found, found


def test_a_deadline_that_moved_is_told() -> None:
    name = "scene-running-timeout"
    log = read(name)
    at, reached = [(at, each) for at, each in enumerate(log) if isinstance(each.commit.events[0], TimeReached)][-1]
    later = replace(reached, commit=replace(reached.commit, at=reached.commit.at + 1))
    found = judged(name, "calm", read_lines()[name].digest, [*log[:at], later, *log[at + 1 :]])
    assert f"its deadline was {later.commit.at}, and is {reached.commit.at}" in found


def test_an_invariant_that_is_broken_is_told() -> None:
    name = "scene-reclaimed"
    log = read(name)
    last = log[-1]
    log[-1] = replace(last, commit=replace(last.commit, epoch=last.commit.epoch + 1))
    assert "breaks 1 invariants, first Violation(invariant='I13'" in judged(name, "runners", "", log)


def test_a_file_that_was_exchanged_is_told() -> None:
    name = "scene-reclaimed"
    assert "is not the file that digests.txt is about" in judged(name, "calm", "other", read(name))


def test_one_that_cannot_be_read_any_more_says_how_it_is_written(tmp_path: Path) -> None:
    write_lines({"old": replace(read_lines()["scene-reclaimed"], name="old")}, tmp_path)
    path_of("old", tmp_path).write_bytes(gzip.compress(b'{"seq":1,"commit":{"events":[{"type":"of_another_time"}]}}\n'))
    assert "record it anew: make histories ARGS=old" in judge("old", tmp_path)


def test_two_recordings_are_equal_but_for_what_moved(tmp_path: Path) -> None:
    log = read("scene-released-evicted")
    one, other = tmp_path / "one.jsonl.gz", tmp_path / "other.jsonl.gz"
    write(log, one)
    write(changed(log, EvictionOrdered, attempt=7), other)
    found = compare(one, other, ["EvictionOrdered.attempt"])
    assert str(found).endswith("are equal; apart: EvictionOrdered.attempt in 1")
    assert (found.commits, found.first) == (len(log), "")
    found = compare(one, other, ["EvictionOrdered.victims.attempt"], decisions=True)
    assert "attempt\n        was 1\n        is  7" in found.first
    write(log[:-1], other)
    assert f"the second ends before {log[-1].seq} " in compare(one, other).first


def test_the_tests_that_play_histories_are_there() -> None:
    named = [of for recipe in HISTORIES.values() if "::" in (of := recipe.play.__doc__ or "")]
    assert len(named) > 30
    assert all(callable(function_of(of)) for of in named)
