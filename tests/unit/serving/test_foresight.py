"""What looks ahead beside the gateway: it says what the state here would say, goes on with it, and may end."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from itertools import pairwise
from random import Random

import psutil
import pytest

from kit import facts
from kit.chaos import Chaos
from kit.waiting import until
from muster.core.cell.seats import Seat
from muster.core.promising.promises import SIZES, Class
from muster.events.envelope import Commit, Stored
from muster.serving import asking
from muster.serving.ahead import Ahead
from muster.serving.asking import read_job
from muster.serving.beside import AwayError, Beside, LateError
from muster.serving.foresight import Foresight
from muster.serving.scope import EVERYTHING, Scope
from muster.serving.supposed import AskView, Change
from muster.serving.whatif import ChangeError
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster_cli import samples

WORKLOAD = read_job({**samples.manifest(samples.TRAINING), "metadata": {"name": "new", "namespace": "video"}})
SCOPES = (EVERYTHING, Scope(frozenset({"video"}), cluster=False))
ASKED = [("ask", (scope, WORKLOAD)) for scope in SCOPES] + [
    ("what_if", (scope, (Change(nodes=2, resource="cpu", value="64"),), "")) for scope in SCOPES
] + [("foreseen", ())]  # fmt: skip


class Clocked:
    """A clock that shows the time of a state."""

    def __init__(self, seat: Seat[ReadState]) -> None:
        self._seat = seat

    def now(self) -> int:
        return self._seat.state.now


@pytest.fixture
def seat() -> Seat[ReadState]:
    return Seat(ReadModel())


@pytest.fixture
async def beside(seat: Seat[ReadState]) -> AsyncIterator[Beside]:
    made = Beside(lambda: seat.state)
    yield made
    await made.stop()


def whole() -> Chaos:
    chaos = Chaos(Random(2))
    chaos.run(steps=150)
    return chaos


async def test_it_answers_as_the_state_here_would_however_far_that_is_folded(
    seat: Seat[ReadState], beside: Beside
) -> None:
    commits = whole().bench.log
    cuts = [*range(0, len(commits), len(commits) // 5), len(commits)]
    for first, last in pairwise(cuts):
        for stored in commits[first:last]:
            seat.fold(stored)
        beside.fold(commits[first:last])
        for method, args in ASKED[::-1]:  # A look ahead first: it then serves both.
            now = seat.state.now
            here = getattr(Ahead(lambda: seat.state), method)(*args, now)
            assert await beside.call(method, *args, now, limit_s=60) == here
    with pytest.raises(ChangeError, match="there is no quota nowhere"):
        await beside.call("what_if", EVERYTHING, (Change(queue="nowhere", field="max", value="1"),), "", 0, limit_s=60)


async def test_where_it_ends_a_question_fails_and_the_next_begins_another(
    seat: Seat[ReadState], beside: Beside
) -> None:
    for stored in whole().bench.log:
        seat.fold(stored)
    found = await beside.call("foreseen", seat.state.now, limit_s=60)
    assert beside._process is not None
    beside._process.kill()
    with pytest.raises(AwayError):
        await beside.call("foreseen", seat.state.now, limit_s=60)
    assert await beside.call("foreseen", seat.state.now, limit_s=60) == found
    question = asyncio.ensure_future(beside.call("foreseen", seat.state.now, limit_s=60))
    await asyncio.sleep(0)
    question.cancel()
    with pytest.raises(asyncio.CancelledError):
        await question
    assert (await beside.call("ask", *ASKED[0][1], seat.state.now, limit_s=60)).job == "video/new"


SLOW = (
    "from muster.serving import ahead, forks; "
    "ahead.Ahead.spin = lambda self: [None for _ in iter(int, 1)]; forks.main()"
)
"""The process that looks ahead, with a question whose answer takes for ever."""


async def test_a_question_that_takes_too_long_ends_and_delays_no_other(
    seat: Seat[ReadState], beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.serving.beside.COMMAND", (sys.executable, "-c", SLOW))
    for stored in whole().bench.log:
        seat.fold(stored)
    found = await beside.call("foreseen", seat.state.now, limit_s=60)
    assert beside._process is not None
    process = psutil.Process(beside._process.pid)
    long = asyncio.ensure_future(beside.call("spin", limit_s=1.0))
    await until(process.children)
    assert await beside.call("foreseen", seat.state.now, limit_s=60) == found
    with pytest.raises(LateError, match="no answer within 1 s"):
        await long
    await until(lambda: not process.children())
    given_up = asyncio.ensure_future(beside.call("spin", limit_s=600))
    await until(process.children)
    given_up.cancel()
    await until(lambda: not process.children())
    assert await beside.call("foreseen", seat.state.now, limit_s=60) == found


def test_a_job_of_a_million_pods_that_never_fits_takes_as_few_looks_as_a_small_one(
    seat: Seat[ReadState], monkeypatch: pytest.MonkeyPatch
) -> None:
    foreseeable(seat)
    manifest = samples.manifest(samples.RAYJOB)
    cluster = manifest["spec"]["rayClusterSpec"]
    cluster["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1000"}}
    [group] = cluster["workerGroupSpecs"]
    group |= {"replicas": 1_000_000, "minReplicas": 1_000_000, "maxReplicas": 1_000_000}
    group["template"]["spec"]["containers"][0]["resources"] = {"requests": {"memory": "1"}}
    job = read_job({**manifest, "metadata": {"name": "new", "namespace": "video"}})
    real, looks = asking.refusal, 0

    def counted(*args: object) -> str:
        nonlocal looks
        looks += 1
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(asking, "refusal", counted)
    parts: list[AskView] = []
    found = Ahead(lambda: seat.state, part=parts.append).ask(EVERYTHING, job, seat.state.now)
    assert found.complete
    assert looks < 60
    [part] = parts
    assert (part.complete, part.binds, part.starts_now) == (False, found.binds, False)


async def test_what_it_has_not_read_is_bounded_however_slow_it_is(
    seat: Seat[ReadState], beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.serving.beside.MOST_UNREAD", 100_000)
    for stored in whole().bench.log:
        seat.fold(stored)
    now = seat.state.now
    before = await beside.call("foreseen", now, limit_s=60)
    process = beside._process
    assert process is not None
    assert process.stdin is not None
    process.send_signal(signal.SIGSTOP)
    question = asyncio.ensure_future(beside.call("foreseen", now, limit_s=60))
    await asyncio.sleep(0)
    for _ in range(200):
        stored = filler(seat.state.seq + 1)
        seat.fold(stored)
        beside.fold((stored,))
        assert process.stdin.transport.get_write_buffer_size() < 200_000
    process.send_signal(signal.SIGCONT)
    assert await question == before, "the question under way is answered"
    assert await beside.call("foreseen", now, limit_s=60) == Ahead(lambda: seat.state).foreseen(now), (
        "it is of now again"
    )
    assert beside._process is not process


def filler(seq: int) -> Stored:
    """Pods that change."""
    pods = tuple(facts.pod("one", each, "video", running=bool(seq % 2)) for each in range(20))
    return Stored(seq, Commit(commit_id=f"c{seq}", stage="watcher", shard="pods", kind="input", at=0, events=pods))


async def test_readers_do_not_wait_for_a_look_that_is_made_again(seat: Seat[ReadState]) -> None:
    for stored in whole().bench.log:
        seat.fold(stored)
    foresight, made, goes_on = Foresight(lambda: seat.state, Clocked(seat), apart=False), 0, asyncio.Event()
    goes_on.set()
    real = foresight.ahead.call

    async def slow(method: str, *args: object, limit_s: float) -> object:
        nonlocal made
        made += 1
        await goes_on.wait()
        return await real(method, *args, limit_s=limit_s)

    foresight.ahead.call = slow  # type: ignore[method-assign]
    keeping = asyncio.ensure_future(foresight.keep())
    now = seat.state.now
    first = await foresight.foreseen(seat.state, now, {}, live=True)
    goes_on.clear()
    for _ in range(3):
        assert await foresight.foreseen(seat.state, now + 3_600_000, {}, live=True) is first
        await asyncio.sleep(0)
    assert made == 2, "one look for the first reader, and one that is under way for all that came later"
    goes_on.set()
    while foresight._foreseen[1] is first:
        await asyncio.sleep(0)
    # A job that came after the look is waited for.
    job = next(each for each in seat.state.queues.jobs.values() if each.status == "waiting")
    foresight._foreseen = (job.queued_at - 1, {})
    found = await foresight.foreseen(seat.state, now, {"namespace": job.ref.namespace, "name": job.ref.name}, live=True)
    assert found == {**first}
    keeping.cancel()


def foreseeable(seat: Seat[ReadState]) -> None:
    """Jobs that wait, and enough past to tell when they start."""
    for stored in whole().bench.log:
        seat.fold(stored)
    for _ in range(30):
        seat.state.promises.durations.ended(("",), 600_000)
        for age in range(12):
            known = seat.state.promises.classes.setdefault(age * SIZES, Class())
            known.calibration.waited(60_000, 60_000)


def test_a_change_that_changes_nothing_lets_no_job_start_earlier_however_much_later_it_is_asked(
    seat: Seat[ReadState],
) -> None:
    foreseeable(seat)
    ahead = Ahead(lambda: seat.state)
    for later in (0, 1_000, 60_000):
        now = seat.state.now + later
        ahead.foreseen(now - 500)
        found = ahead.what_if(EVERYTHING, (Change(nodes=2, resource="cpu", value="64"),), "", now)
        assert (found.earlier, found.later, found.waiting) == (0, 0, 7)


def test_where_many_start_before_it_its_cost_is_said_not_to_be_foreseen(
    seat: Seat[ReadState], monkeypatch: pytest.MonkeyPatch
) -> None:
    foreseeable(seat)
    small = read_job({**samples.manifest(samples.RAYJOB), "metadata": {"name": "new", "namespace": "video"}})
    ahead = Ahead(lambda: seat.state)
    monkeypatch.setattr(asking, "LOOKED_AT", -1)
    [said] = ahead.ask(EVERYTHING, small, seat.state.now).costs
    assert said.startswith("jobs that would start later are not foreseen: ")
