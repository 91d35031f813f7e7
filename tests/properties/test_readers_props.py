"""Histories of every kind, and all readers: no two differ, and no sentence contradicts the numbers it stands on."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit import facts, kai
from kit.depth import examples
from kit.scenes import Scene
from kit.words import odd
from muster.core.learned import Estimate
from muster.core.objects.meta import KAI_QUEUE
from muster.core.quota.demand import counted
from muster.core.stage import Folder
from muster.events.decisions import WorkloadRefused
from muster.events.envelope import Stored
from muster.events.facts import ObjectUnreadable
from muster.events.public import PublicWorkloadDenied, PublicWorkloadRefused
from muster.model.keys import path_chain
from muster.model.resources import parse_quantity
from muster.model.workload import Wishes
from muster.runtime.logkeeping.snapshotting import decode_state, encode_state
from muster.serving.board import board_of
from muster.serving.joblist import job_rows
from muster.told.codes.codetable import CODES
from muster.told.codes.values import NotQueued
from muster.told.presentation import desired, kaigroups
from muster.told.presentation.queuestatus import queue_status
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.status.jobstatus import JobStatus
from muster.told.status.statuses import job_status
from muster.told.views.publication import public_event
from muster.told.views.story import Story, more_of
from muster.told.wording import jobs
from muster_cli.expectation import expected
from muster_cli.levers import standing_line
from muster_cli.local.teller import Teller
from muster_cli.render.queuestories import position_record

SETTINGS = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
ROOM = re.compile(
    r"has (\S+) free of (\S+) \((\S+) in use[^)]*\): it is tried again once (\S+) more (?:is|are) released"
)
FAULTY = re.compile(r"\b1 more are\b|\bfor it: its\b|proposed as victims|\bit was deleted$|has finished: |It runs for")
"""A number that its verb does not follow; a sentence led in by another; a reason said twice; a past told as present."""
HELD = re.compile(r"used (\S+), held (\S+) for (\S+)\.")


def numbers_hold(state: ReadState, uid: str, status: JobStatus) -> None:
    """Places, amounts and the text about them, of one job."""
    text = jobs.text(status, state.now, more=more_of(state, uid, status))
    assert not FAULTY.search(text), text
    if status.code == "WaitingForClaim":
        assert "roposed victims" not in text, text
    if status.line.position:
        order = [place.key for place, _ in state.queues.book.in_order(status.queue)]
        assert (status.line.length, order[status.line.position - 1]) == (len(order), status.job)
        assert list(status.line.ahead) == order[: min(3, status.line.position - 1)]
    if status.short is not None:
        short = status.short.refusal
        assert short.asked > 0
        assert short.used + short.held + short.kept + short.asked > short.limit, (status, text)
        charges = [each for each in state.queues.ledger.charges.values() if short.path in path_chain(each.queue)]
        charges = [each for each in charges if not (short.of_min and each.preemptible)]
        assert short.used == sum(counted(each.demand).get(short.resource, 0) for each in charges), (status, text)
        assert bool(short.held) == bool(short.claimant)
        if status.code == "InsufficientQuota" and (found := ROOM.search(text)):
            free, limit, used, missing = (parse_quantity(each, short.resource) for each in found.groups())
            assert (limit, used) == (short.limit, short.used)
            assert free == max(limit - used - short.held - short.kept, 0)
            assert missing == short.missing > 0
        if found := HELD.search(text):
            used, held = (parse_quantity(each, short.resource) for each in found.groups()[:2])
            assert (used, held, found.group(3)) == (short.used, short.held, short.claimant)
    if status.charge is not None:
        assert status.charge.request == state.queues.ledger.charges[uid].request
        assert all(amount <= status.charge.request.get(name, 0) for name, amount in status.charge.beyond.items())
    assert (status.phase == "waiting") == (status.code in WAITING) or status.phase == "leaving", status
    assert "  " not in text
    assert not text.endswith((" ", ",", ":"))
    assert "None" not in text


WAITING = {code for code, row in CODES.items() if "waiting" in row.phases}


def readers_agree(state: ReadState) -> set[str]:
    """Why, position, ls, levers, muster up, QueueUnit, Event, Queue, queue tree, KAI conditions; returns the codes."""
    met: set[str] = set()
    rows = {row.uid: row for row in job_rows(state, state.now)}
    board = board_of(state)
    heads = {node.path: node.head for node in board.nodes if node.head is not None}
    narrating = Teller(None, "", 0, lambda _: None)  # type: ignore[arg-type]
    narrating._narrator = type("Told", (), {"state": state})()
    waiting: dict[str, int] = {}
    for uid, record in state.records.items():
        status = job_status(state, uid)
        met.add(status.code)
        if uid in state.queues.workloads:
            numbers_hold(state, uid, status)
        row, reason = rows[uid], jobs.reason(status)
        assert (row.code, row.phase, row.position, row.length) == (
            status.code, status.phase, status.line.position, status.line.length,
        )  # fmt: skip
        if status.line.position:
            waiting[status.queue] = waiting.get(status.queue, 0) + 1
            assert str(status.line.position) in standing_line(state, uid)
        if row.phase not in ("finished", "gone"):
            assert row.text == reason.text
        story = Story(record.ref.key, record.ref.kind, state).of(record.ref.key)
        if story.ref.uid == uid:
            place = position_record(expected(story, state))
            assert (place["standing"], place["position"], place["length"]) == (
                status.code, status.line.position, status.line.length,
            )  # fmt: skip
            assert isinstance(expected(story, state).estimate, Estimate)
        unit = desired.unit_state(state, uid)
        if unit is not None and status.phase in ("waiting", "refused"):
            assert unit.reason.text == reason.text
        event = desired.job_event(state, uid)
        if event is not None:
            assert event.reason == status.code
            assert reason.text in event.message
        group = _condition(state, uid)
        assert group in ("", desired.shown_text(reason.text)), (group, reason)
        trouble = desired.trouble_event(state, uid)
        if trouble is not None and status.phase == "refused":
            assert trouble.message == desired.shown_text(reason.text), (trouble, reason)
    for path in state.queues.book.queues:
        node = next((each for each in board.nodes if each.path == path), None)
        if node is None:
            continue
        shown = queue_status(state, path)
        assert node.waiting == state.queues.book.length(path)
        leaving = [uid for uid in _booked(state, path) if not _asks(state, uid)]
        assert node.waiting - len(leaving) == waiting.get(path, 0), path
        assert shown.waiting == node.waiting
        first = next(state.queues.book.in_order(path), None)
        if first is not None:
            assert heads[path].code == jobs.reason(job_status(state, first[0].uid)).code
    for each in board.nodes:
        used = state.queues.ledger.used.get(each.path, {})
        assert all(amount.used == used.get(amount.resource, 0) for amount in each.amounts)
    assert narrating.why_not()
    return met


def _booked(state: ReadState, path: str) -> list[str]:
    return [place.uid for place, _ in state.queues.book.in_order(path)]


def _asks(state: ReadState, uid: str) -> bool:
    """Whether the object of a job in the book still asks to be queued; the sorter takes it out when it does not."""
    workload = state.queues.workloads.get(uid)
    return workload is not None and workload.phase != "finished"


def published_agrees(state: ReadState, stored: Stored) -> None:
    """What the last commit says to subscribers is what the status says."""
    for index, event in enumerate(stored.commit.events):
        found = public_event("cell", 1, stored.seq, index, stored.commit.at, event)
        if not isinstance(found, PublicWorkloadRefused | PublicWorkloadDenied):
            continue
        status = job_status(state, found.workload.uid)
        if isinstance(status.values, NotQueued) and isinstance(event, WorkloadRefused):
            assert (found.message, event.refusal) == (jobs.reason(status).text, status.values.refusal)


def _condition(state: ReadState, uid: str) -> str:
    """The sentence of a KAI PodGroup about a waiting or refused job."""
    workload = state.queues.workloads.get(uid)
    return kaigroups._waits(state, workload)[2] if workload is not None else ""


Step = Callable[[Scene, Random, int], None]


def waiting_in(scene: Scene) -> list[str]:
    return [name for name, job in scene.jobs.items() if job.suspended and job.phase == "waiting"]


def admitted_in(scene: Scene) -> list[str]:
    admitted = scene.admitted
    return [name for name, job in scene.jobs.items() if job.suspended and job.ref.uid in admitted]


def running_in(scene: Scene) -> list[str]:
    return [name for name, job in scene.jobs.items() if not job.suspended and job.phase == "running"]


def any_of(found: list[str], rng: Random) -> str:
    return rng.choice(found) if found else ""


def _job(scene: Scene, rng: Random, number: int) -> None:
    name = f"{rng.choice(('a', 'b', 'c', 'nowhere'))}/j{number}"
    more = rng.choice(("", "", " prio=5", " refusal=spec.x_cannot_be"))
    scene.lines(f"job {name} cpu={rng.choice((1, 2, 3, 5, 9, 30))}{more}")


def _labelled(scene: Scene, rng: Random, number: int) -> None:
    labels = rng.choice(({"quota.scheduling.alibabacloud.com/name": "nope"}, {KAI_QUEUE: "team-a"}, {KAI_QUEUE: "x"}))
    scene.do(facts.seen(facts.job(f"l{number}", rng.choice(("a", "b", "nowhere")), labels=labels, cpu=1)))


def _hold(scene: Scene, rng: Random, _number: int) -> None:
    if name := any_of(waiting_in(scene), rng):
        held = scene.jobs[name].wishes.hold
        scene.change(name, wishes=Wishes() if held else Wishes(hold=True, by="ann", reason="waits for data"))


def _edit(scene: Scene, rng: Random, _number: int) -> None:
    if name := any_of(waiting_in(scene), rng):
        scene.lines(f"edit {name} cpu={rng.choice((1, 4, 9, 30))}")


def _gone(scene: Scene, rng: Random, _number: int) -> None:
    if name := any_of(list(scene.jobs), rng):
        scene.lines(f"gone {name}")
        del scene.jobs[name]


def _runs(scene: Scene, rng: Random, _number: int) -> None:
    if name := any_of(admitted_in(scene), rng):
        scene.runs(name)


def _ends(scene: Scene, rng: Random, _number: int) -> None:
    if name := any_of(running_in(scene), rng):
        scene.lines(f"finishes {name}")


def _around(scene: Scene, rng: Random, _number: int) -> None:
    if name := any_of(waiting_in(scene), rng):
        scene.lines(f"starts {name}")


def _unreadable(scene: Scene, rng: Random, number: int) -> None:
    if name := any_of(list(scene.jobs), rng):
        scene.do(ObjectUnreadable(ref=scene.jobs[name].ref, rv=9_000_000 + number, problem=odd("spec.x: missing")))


def _tree(scene: Scene, rng: Random, _number: int) -> None:
    """Limits, an ancestor without room, pauses and moves of namespaces between the leaves."""
    spaces = rng.choice((("a", "b"), ("b", "a"), ("c", "b")))
    leaves = tuple(
        facts.node(name, {"cpu": rng.choice((0, 2, 3))}, {"cpu": rng.choice((4, 8, 12))}, (space,))
        for name, space in zip(("a", "b"), spaces, strict=True)
    )
    root = facts.node("root", {"cpu": 8}, {"cpu": rng.choice((8, 8, 10))}, children=leaves)
    rules = rng.choice(
        ({}, {}, {"paused": "admissions", "paused-by": "ann", "paused-reason": "network"}, {"runtime": "weight"},
         {"preempt-lower-priority": "true"}, {"paused": "evictions"})
    )  # fmt: skip
    scene.do(facts.tree(root, rules=rules))


def _kai(scene: Scene, rng: Random, _number: int) -> None:
    scene.do(kai.queue("team-a", rng.choice(("", "", "lost"))))


def _time(scene: Scene, rng: Random, _number: int) -> None:
    scene.lines(f"time +{rng.choice((1, 30, 700, 4_000))}s")


def _full(scene: Scene, rng: Random, _number: int) -> None:
    if rng.random() < 0.3:
        scene.lines("log-nearly-full")


STEPS: tuple[tuple[Step, int], ...] = (
    (_job, 8), (_labelled, 1), (_hold, 2), (_edit, 2), (_gone, 2), (_runs, 6), (_ends, 3), (_around, 1),
    (_unreadable, 1), (_tree, 3), (_kai, 1), (_time, 3), (_full, 1),
)  # fmt: skip
"""What may happen, and how often."""


def lived(seed: int, steps: int = 40) -> Scene:
    """A history in which anything may happen after anything."""
    rng, scene = Random(seed), Scene()
    scene.tree_of(("a", 3), ("b", 3))
    scene.lines("synced")
    weights = [weight for _, weight in STEPS]
    for number in range(steps):
        rng.choices([step for step, _ in STEPS], weights)[0](scene, rng, number)
    return scene


MET: set[str] = set()


@SETTINGS
@given(st.integers(0, 2**32))
def test_no_reader_differs_and_no_sentence_contradicts_its_numbers(seed: int) -> None:
    scene, folder, state = lived(seed), Folder(ReadModel()), ReadState()
    rng = Random(seed)
    looked = {rng.randrange(len(scene.bench.log)) for _ in range(8)} | {len(scene.bench.log) - 1}
    for index, stored in enumerate(scene.bench.log):
        folder.fold(state, stored)
        if index in looked:
            MET.update(readers_agree(state))
            published_agrees(state, stored)
            state = decode_state(encode_state(state), ReadState)
    assert ReadModel().check(state) == []
