"""Who is let in beside a claim for age by the run time that it declares, and when nobody is."""

from __future__ import annotations

import pytest
from msgspec import structs

from kit import facts
from kit.audits import audit
from kit.scenes import WAITS_S, Scene
from muster.core.cell.seats import Seat
from muster.core.objects.meta import RUN_TIME
from muster.core.quota.demand import AROUND_MS, HOUR_MS, MINUTE_MS, run_time_ms
from muster.events.claims import ClaimOpened
from muster.events.decisions import QuotaReserved
from muster.runtime.logkeeping.snapshotting import decode_state, encode_state
from muster.told.views.story import Story
from muster.told.views.tellings import JobStory

BEGAN = 1_000_000 + WAITS_S * 1_000
"""Log time (ms) at which the jobs begin that run when a/big is passed: a bench begins at 1,000,000."""


def scene_of(*declared: str, **rules: str) -> Scene:
    """Eight cores, all of them used by four jobs of b that declare so; a/big wants six of them, and is passed."""
    scene = Scene()
    scene.tree_of(("a", 0), ("b", 0), **{"reclaim": "disabled"} | rules)
    scene.lines("synced")
    for index, text in enumerate(declared):
        scene.lines(f"job b/x{index} cpu=2{f' run={text}' if text else ''}")
        scene.runs(f"b/x{index}")
    scene.lines("job a/big cpu=6")
    scene.waits()
    scene.lines("time +700s")
    scene.passed(6, "b/x3", 2, declared[3])
    return scene


def end(scene: Scene, name: str) -> None:
    scene.lines(f"finishes {name}", f"gone {name}")


def promised(scene: Scene) -> list[int]:
    """Minutes from then on."""
    return [(each.promised - BEGAN) // MINUTE_MS if each.promised else 0 for each in scene.bench.happened(ClaimOpened)]


def story(scene: Scene, job: str) -> JobStory:
    """What `muster why` says of a job."""
    story = Story(job)
    for stored in scene.bench.log:
        story.feed(stored)
    return story.of(job)


def admitted(scene: Scene) -> list[str]:
    return [each.ref.name for each in scene.bench.happened(QuotaReserved)]


def comes(scene: Scene, name: str, run: str = "", cpu: int = 2) -> bool:
    """Whether a job is let in at once."""
    scene.lines(f"job {name} cpu={cpu}{f' run={run}' if run else ''}")
    return name.partition("/")[2] in admitted(scene)


def test_a_claim_is_promised_by_the_declared_ends_of_what_must_leave() -> None:
    """Three of the four must leave: the third ends after an hour and two minutes, whatever the fourth says."""
    assert promised(scene_of("2h", "1h", "20m", "40m")) == [62]
    assert promised(scene_of("", "1h", "20m", "40m")) == [62]


@pytest.mark.parametrize(
    "declared",
    [("", "", "20m", "40m"), ("1h", "5m", "5m", "40m"), ("soon", "nonsense", "2h", "2h")],
    ids=["two say nothing", "two are late", "two cannot be read"],
)
def test_nothing_is_promised_where_too_little_is_declared(declared: tuple[str, ...]) -> None:
    scene = scene_of(*declared)
    assert promised(scene) == [0]
    end(scene, "b/x0")
    assert not comes(scene, "b/short", "1m")
    scene.bench.sound()


def test_who_declares_to_have_left_by_then_is_let_in_and_nobody_else() -> None:
    """The claim is promised at 62 minutes; at twelve a job of 47 leaves in time, and one of 50 does not."""
    scene = scene_of("2h", "1h", "20m", "40m")
    end(scene, "b/x2")
    assert not comes(scene, "b/silent")
    assert not comes(scene, "b/long", "50m")
    assert not comes(scene, "a/behind")
    assert comes(scene, "a/short", "47m")
    said = scene.bench.happened(QuotaReserved)[-1]
    assert (said.beside, said.run_ms) == ("a/big", 47 * MINUTE_MS)
    scene.runs("a/short")
    scene.lines("time +1680s")
    end(scene, "b/x3")
    scene.lines("time +1200s", "job b/late cpu=1")
    end(scene, "b/x1")
    end(scene, "a/short")
    assert admitted(scene)[-1] == "big"
    scene.bench.sound()


def test_who_waited_is_let_in_when_the_claim_opens_and_again_when_room_comes() -> None:
    """Nothing is proposed in vain meanwhile: each denial follows something that has changed."""
    scene = scene_of("2h", "1h", "20m", "40m")
    for index in range(3):
        assert not comes(scene, f"b/w{index}", "10m")
    before = scene.bench.seq
    scene.lines("time +1s")
    assert scene.bench.seq == before
    end(scene, "b/x2")
    assert admitted(scene)[-1] == "w0"
    scene.runs("b/w0")
    end(scene, "b/w0")
    assert admitted(scene)[-1] == "w1"
    scene.bench.sound()


@pytest.mark.parametrize("late", ["b/liar", "b/x3"])
def test_after_an_overrun_the_promise_is_gone(late: str) -> None:
    """Of who was let in, as of who ran before: nobody passes while it is late, nor when it has left."""
    scene = scene_of("2h", "1h", "20m", "20m")
    end(scene, "b/x2")
    assert comes(scene, "b/liar", "1m")
    scene.runs("b/liar")
    if late == "b/x3":
        end(scene, "b/liar")
        scene.lines("time +1400s")
        assert not comes(scene, "b/next", "1m")
        end(scene, "b/x3")
    else:
        scene.lines("time +200s")
        end(scene, "b/liar")
    assert not comes(scene, "b/other", "2m")
    scene.bench.sound()


@pytest.mark.parametrize("first", ["a/big", "b/wide"])
def test_who_passes_two_claims_names_the_one_that_is_promised_first(first: str) -> None:
    """One is held at the leaf of b alone, the other at the root; of both jobs what they lack leaves at another time."""
    scene = Scene()
    leaves = (facts.node("a", {}, {"cpu": 10}, ("a",)), facts.node("b", {}, {"cpu": 4}, ("b",)))
    root = facts.node("root", {"cpu": 10}, {"cpu": 10}, children=leaves)
    scene.do(facts.tree(root, rules={"reclaim": "disabled"}))
    soon, late = ("1h", "2h") if first == "a/big" else ("2h", "1h")
    scene.lines("synced")
    for job in (f"a/x cpu=3 run={soon}", f"b/y cpu=2 run={late}", "b/z cpu=1 run=20m"):
        scene.lines(f"job {job}")
        scene.runs(job.split()[0])
    scene.lines("job b/wide cpu=4", "job a/big cpu=8")
    scene.waits()
    scene.passed(4, "b/z", 1, "20m")
    scene.passed(8, "a/x", 3, soon)
    assert [each.ref.name for each in scene.bench.happened(ClaimOpened)] == ["wide", "big"]
    assert all(promised(scene))
    end(scene, "b/z")
    assert comes(scene, "b/short", "5m", 1)
    assert scene.bench.happened(QuotaReserved)[-1].beside == first
    scene.bench.sound()


def test_a_claim_for_a_guarantee_is_never_passed() -> None:
    """a is owed all it asks for, so b/x3 is suspended: what it leaves is held against everybody."""
    scene = Scene()
    scene.tree_of(("a", 6), ("b", 0))
    scene.lines("synced", "job b/x0 cpu=4 run=1h", "job b/x1 cpu=2 run=2h")
    scene.runs("b/x0")
    scene.runs("b/x1")
    scene.lines("job a/owed cpu=6")
    assert not comes(scene, "b/short", "1m", 2)
    scene.bench.sound()


def test_an_adopted_job_is_not_counted_on() -> None:
    scene = Scene()
    scene.tree_of(("a", 0), ("b", 0), reclaim="disabled")
    scene.lines("job b/old cpu=2 run=1h", "starts b/old", "synced")
    for name in ("b/x0", "b/x1", "b/silent"):
        scene.lines(f"job {name} cpu=2")
        scene.runs(name)
    scene.lines("job a/big cpu=6", "time +60s")
    scene.lines(*(f"follow {name} cpu=2 run=1h times=1" for name in ("b/x0", "b/x1")))
    scene.passed(6, "b/silent", 2)
    assert promised(scene) == [0]
    scene.bench.sound()


def test_an_edit_queues_a_waiting_job_anew_in_its_place_and_does_nothing_to_one_that_runs() -> None:
    scene = scene_of("2h", "1h", "20m", "40m")
    scene.lines("job b/first cpu=2 run=3h", "time +1s", "job b/second cpu=2 run=10m")
    scene.change("b/first", labels={RUN_TIME: "10m"})
    end(scene, "b/x2")
    assert admitted(scene)[-1] == "first"
    scene.runs("b/first")
    charge = scene.bench.states["quota_accountant"].ledger.charges[scene.jobs["b/first"].ref.uid]
    before = charge.until
    scene.change("b/first", labels={RUN_TIME: "9h"})
    assert charge.until == before
    scene.bench.sound()


@pytest.mark.parametrize("forged", [{"promised": 1}, {"promised": 0}], ids=["promised too early", "not promised"])
def test_the_audit_notices_who_passes_a_claim_that_does_not_let_it(forged: dict[str, int]) -> None:
    """The log as it is holds; with the promise of the claim changed in it, it does not."""
    scene = scene_of("2h", "1h", "20m", "40m")
    end(scene, "b/x2")
    assert comes(scene, "b/short", "5m")
    assert not audit(scene.bench.log).violations
    log = []
    for stored in scene.bench.log:
        events = tuple(
            structs.replace(each, **forged) if isinstance(each, ClaimOpened) else each for each in stored.commit.events
        )
        log.append(structs.replace(stored, commit=structs.replace(stored.commit, events=events)))
    assert {each.invariant for each in audit(log).violations} == {"I25"}


def test_a_claim_survives_a_snapshot_with_what_it_counts_on() -> None:
    scene = scene_of("2h", "1h", "20m", "40m")
    for name, seat in scene.bench.seats.items():
        scene.bench.seats[name] = Seat(seat.stage, decode_state(encode_state(seat.state), type(seat.state)))
    end(scene, "b/x2")
    assert comes(scene, "b/short", "5m")
    scene.lines("time +500s")
    assert not comes(scene, "b/other", "5m")


def test_why_tells_both_times() -> None:
    scene = scene_of("2h", "20m", "14m", "16m")
    end(scene, "b/x2")
    for name, run in (("b/long", "2h"), ("b/silent", "")):
        comes(scene, name, run)
    texts = {name: story(scene, name).standing.text for name in ("a/big", "b/long", "b/silent")}
    at = "1970-01-01T05:34:20Z"
    assert f"by {at} if the declared run times are true" in texts["a/big"]
    assert f"It declares 2 h, and that job is promised to start by {at}" in texts["b/long"]
    assert f"promised to start by {at}: jobs that end before ({RUN_TIME}) may pass" in texts["b/silent"]
    assert comes(scene, "b/short", "5m")
    taken = next(each.entry.text for each in story(scene, "b/short").happenings if each.entry.word == "reserved")
    assert f"it declares 5 min, and job a/big, for which quota is held, is promised by {at}" in taken
    scene.lines("time +1200s", "job b/late cpu=1")
    assert "the declared run times promise that job no start" in story(scene, "b/long").standing.text


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("", 0), ("0", 0), ("1s", 1), ("59m1s", 60), ("61m", 65), ("6h1m", 390), ("24h30m", 1500), ("x", 0)],
)
def test_declared_times_are_rounded_up(text: str, minutes: int) -> None:
    assert run_time_ms({RUN_TIME: text}) == minutes * MINUTE_MS
    assert run_time_ms({}) == 0
    assert AROUND_MS < HOUR_MS
