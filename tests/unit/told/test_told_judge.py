"""The judge of the told finds no lie in recorded histories, and each lie that is planted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec import structs

from kit.daylogs import day, demo, played
from kit.histories.files import names_in, read
from kit.toldjudge import Answers, Kind, ToldJudge, lies_of
from muster.events.envelope import Stored
from muster.serving import shapes

SHORT = (
    "scenario-preempts-in-its-queue",
    "scene-quota-held",
    "turmoil-tree",
    "ray-gives-back",
)
LONG = "demo-teams"
"""Five teams for an hour; jobs are evicted, and come back."""


def judged(log: Sequence[Stored], seed: int, moments: int, jobs: int) -> Counter[Kind]:
    judge = ToldJudge(log, seed)
    judge.run(moments, jobs)
    assert not judge.lies, "\n".join(map(str, judge.lies[:5]))
    return judge.judged


def test_what_is_told_of_recorded_histories_holds() -> None:
    kinds = sum((judged(read(name), 1, 12, 4) for name in SHORT), judged(read(LONG), 1, 8, 4))
    assert {"place", "number", "holder", "history", "taker", "would start", "what-if", "live", "reader"} <= set(kinds)
    assert sum(kinds.values()) > 2_000


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_what_is_told_of_every_history_and_of_whole_days_holds(tmp_path: Path) -> None:
    """10,000 questions: why does it wait, would a job like it start, and what if nothing changed."""
    logs = [read(name) for name in names_in()]
    kinds = sum((judged(log, 2, 40, 6) for log in logs), Counter[Kind]())
    for log in (played(demo(tmp_path, 1, 2)), day("seren", 1), day("flood", 1)):
        kinds += judged(log, 7, 120, 8)
    assert kinds["reader"] + kinds["would start"] + kinds["what-if"] >= 10_000
    assert sum(kinds.values()) > 150_000


# --- lies -------------------------------------------------------------------------------------------------------------


def of_each(change: Callable[[shapes.WhyView, Answers], shapes.WhyView]) -> Callable[[Answers], None]:
    """A lie on the page of each job."""

    def plant(answers: Answers) -> None:
        answers.why = {uid: change(why, answers) for uid, why in answers.why.items()}

    return plant


def off_by_one(why: shapes.WhyView, _: Answers) -> shapes.WhyView:
    job = why.job
    return structs.replace(why, job=structs.replace(job, position=job.position + 1) if job.position else job)


def longer(why: shapes.WhyView, _: Answers) -> shapes.WhyView:
    return structs.replace(why, text=re.sub(r"of (\d+), \d+ ahead", r"of 9\1, 1 ahead", why.text))


def ended_holder(why: shapes.WhyView, _: Answers) -> shapes.WhyView:
    if why.wanting is None:
        return why
    holders = [structs.replace(each, job=f"{each.job}-before") for each in why.wanting.holders]
    return structs.replace(why, wanting=structs.replace(why.wanting, holders=holders))


def fewer_hold(why: shapes.WhyView, _: Answers) -> shapes.WhyView:
    wanting = why.wanting
    return structs.replace(why, wanting=structs.replace(wanting, held_by=wanting.held_by + 1)) if wanting else why


def old_number(why: shapes.WhyView, _: Answers) -> shapes.WhyView:
    return structs.replace(why, text=re.sub(r"\((\d+) in use", r"(1\1 in use", why.text))


def of_the_present(why: shapes.WhyView, answers: Answers) -> shapes.WhyView:
    return structs.replace(why, moment=structs.replace(why.moment, sequence=answers.seq + 10))


def since_later(why: shapes.WhyView, _: Answers) -> shapes.WhyView:
    return structs.replace(why, job=structs.replace(why.job, since="2999-01-01T00:00:00Z"))


def rewritten(why: shapes.WhyView, answers: Answers) -> shapes.WhyView:
    first, *rest = why.events
    return structs.replace(why, events=[structs.replace(first, text=f"{first.text} ({answers.seq})"), *rest])


class Dropped:
    """The first line of a job is gone when a reader comes again."""

    def __init__(self) -> None:
        self._met: set[str] = set()

    def __call__(self, why: shapes.WhyView, _: Answers) -> shapes.WhyView:
        again = why.job.uid in self._met
        self._met.add(why.job.uid)
        return structs.replace(why, events=why.events[1:]) if again else why


def numbers_of_today(why: shapes.WhyView, _: Answers) -> shapes.WhyView:
    events = [structs.replace(each, text=re.sub(r", used (\d+)", r", used 7\1", each.text)) for each in why.events]
    return structs.replace(why, events=events)


def as_before(why: shapes.WhyView, _: Answers) -> shapes.WhyView:
    return structs.replace(why, text=f"{why.text}. It is queued again in its old place")


def held_for_nobody(why: shapes.WhyView, _: Answers) -> shapes.WhyView:
    return structs.replace(why, text=re.sub(r"(\d+) in use\b[^)]*", r"\1 in use, held 1 for nobody/x", why.text))


def took_nothing(why: shapes.WhyView, _: Answers) -> shapes.WhyView:
    return structs.replace(why, text=re.sub(r"went to (\S+)", r"went to \1-x", why.text))


def more_took(why: shapes.WhyView, _: Answers) -> shapes.WhyView:
    taken = "While it waited, cpu there went to {} (1, ahead of it), and 99 before them"
    return structs.replace(why, text=f"{why.text}. {taken.format(why.job.namespace + '/' + why.job.name)}")


def starts_now(answers: Answers) -> None:
    answers.asked = {uid: structs.replace(each, starts_now=True) for uid, each in answers.asked.items()}


def has_an_effect(answers: Answers) -> None:
    answers.supposed = {uid: structs.replace(each, earlier=1) for uid, each in answers.supposed.items()}


def other_row(answers: Answers) -> None:
    answers.rows = {uid: structs.replace(each, status="Running ") for uid, each in answers.rows.items()}


LIES: dict[Callable[[Answers], None], Kind] = {
    of_each(off_by_one): "place",
    of_each(longer): "place",
    of_each(ended_holder): "holder",
    of_each(fewer_hold): "holder",
    of_each(held_for_nobody): "holder",
    of_each(old_number): "number",
    of_each(numbers_of_today): "number",
    of_each(of_the_present): "live",
    of_each(since_later): "live",
    of_each(rewritten): "history",
    of_each(Dropped()): "history",
    of_each(took_nothing): "taker",
    of_each(more_took): "taker",
    starts_now: "would start",
    has_an_effect: "what-if",
    other_row: "reader",
}


@pytest.fixture(scope="module")
def history() -> Sequence[Stored]:
    return read("tree-reclaim")


@pytest.mark.parametrize(("plant", "kind"), LIES.items())
def test_a_planted_lie_is_found(plant: Callable[[Answers], None], kind: Kind, history: Sequence[Stored]) -> None:
    assert kind in {lie.kind for lie in lies_of(history, 3, 12, 4, plant)}


def test_no_evicted_job_is_promised_its_old_place() -> None:
    """In the default order an evicted job comes back behind jobs that waited meanwhile."""
    assert "as before" in {lie.kind for lie in lies_of(read(LONG), 3, 8, 4, of_each(as_before))}
