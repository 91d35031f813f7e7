"""What operators watch: a question takes one query, an alert fires by its fault and is silent on a good day."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from structlog import get_logger

from kit import facts, nodes
from kit.promql import Recorded
from kit.scenes import Scene, beginning, claimed, refused
from kit.standings import SCENES, held_up
from muster.core.stage import Folder, Violation
from muster.events.decisions import WorkloadRefused
from muster.events.envelope import Stored
from muster.events.public import PublicEvent, PublicWorkloadEvicted
from muster.model.problem import problem
from muster.runtime.logkeeping.copies import Cause, ServerTrouble
from muster.runtime.measuring import Measuring
from muster.telemetry.instruments import COUNTERS, GAUGES, HISTOGRAMS
from muster.telemetry.metrics import Metrics, labels
from muster.telemetry.observer import StageTelemetry
from muster.telemetry.traces import WorkloadTraces, make_tracing
from muster.told.readmodel.model import ReadModel
from muster.told.views.publication import facets_in, public_event
from muster_tools import monitoring
from muster_tools.alerts import ALERTS, BOARDS, QUESTIONS

ROOT = Path(__file__).parents[3]
GPU = "nvidia.com/gpu"
MINUTE = 60_000
SORTER = "queue_sorter"


class Lease:
    held = True


class Publishing:
    """A publisher that leads, as far as the page asks it."""

    caught_up, lease, unfolded_since = True, Lease(), 0

    def __init__(self) -> None:
        self.state = ReadModel().initial()


class Clock:
    ms = 0

    def now(self) -> int:
        return self.ms


class Watched:
    """A log that is published, and its page of metrics as it was scraped every minute."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.folder, self.read = scene, Folder(ReadModel()), 0
        self.metrics, self.clock, self.publisher = Metrics(), Clock(), Publishing()
        self.runners: list[Any] = []
        self.publishers: list[Any] = [self.publisher]
        self.keepers: list[Any] = []
        self.recorded = Recorded()
        self.published: list[PublicEvent] = []
        self.telemetries = [self.telemetry(stage) for stage in ("watcher", "publisher", "presenter", "keeper", SORTER)]
        for each in self.telemetries:
            each.role("leading", 1)
        self.metrics.set("muster_log_fill_percent", (), 3)
        self.metrics.read_from(Measuring(self))

    def telemetry(self, stage: str) -> StageTelemetry:
        traces = WorkloadTraces(make_tracing(stage), stage, lambda _seq: 1)
        return StageTelemetry(stage, "0", self.metrics, get_logger(), traces)

    def of(self, stage: str) -> StageTelemetry:
        return next(each for each in self.telemetries if each._stage == stage)

    def scrape(self) -> None:
        for stored in self.scene.bench.log[self.read :]:
            self.publish(stored)
        self.read = len(self.scene.bench.log)
        self.clock.ms = self.scene.bench.now
        self.recorded.take(self.metrics.registry.collect(), self.clock.ms / 1000)

    def publish(self, stored: Stored) -> None:
        state = self.publisher.state
        known = facets_in(state, stored)
        self.folder.fold(state, stored)
        for index, event in enumerate(stored.commit.events):
            found = public_event("main", 1, stored.seq, index, state.now, event, known)
            if found is not None:
                self.published.append(found)
                self.of("publisher").published(found)

    def minutes(self, number: int) -> None:
        for _ in range(number):
            self.scene.bench.pass_time(MINUTE)
            self.scrape()

    def fired(self) -> set[str]:
        return {each.name for each in ALERTS if self.recorded.fires(each.query, each.seconds)}


def watched(scene: Scene) -> Watched:
    made = Watched(scene)
    made.scrape()
    return made


def crowded() -> Watched:
    """A queue that uses eight of twelve cores, with a job that waits for eight more."""
    made = watched(beginning("job two cpu=8", "resumed two", "cluster two", "pod two 0", "runs two"))
    made.scene.lines("job one cpu=8")
    made.scrape()
    made.minutes(5)
    return made


def idle_gpus() -> Watched:
    """Four GPUs that are free, and a job that is not admitted: its queue is paused until ten minutes have passed."""
    scene = Scene()
    leaf = facts.node("a", {GPU: 4}, {GPU: 8}, ("a",))
    root = facts.node("root", {GPU: 8}, {GPU: 8}, children=(leaf,))
    scene.do(nodes.node("n", cpu=64, memory=256, gpu=4), facts.tree(root))
    scene.lines("synced")
    job = facts.job("one", "a", cpu=0, memory=0, gpu=4)
    scene.bench.facts(facts.seen(job))
    scene.take("queue_sorter")
    made = watched(scene)
    for _ in range(50):
        scene.bench.now += MINUTE
        made.scrape()
    return made


def evicted() -> Watched:
    scene = claimed()
    made = watched(scene)
    scene.suspended("b/greedy")
    made.scrape()
    return made


ASKED: tuple[tuple[Callable[[], Watched], dict[tuple[tuple[str, str], ...], float]], ...] = (
    (crowded, {(("queue", "root/algorithm/video"), ("resource", "cpu")): 8}),
    (crowded, {(("queue", "root/algorithm/video"),): 359}),
    (crowded, {(("queue", "root/algorithm/video"), ("resource", "cpu")): 8 / 12}),
    (evicted, {(("queue", "root/b"), ("reason", "reclaimed")): 1}),
    (crowded, {(("shard", "0"), ("stage", "publisher")): 0}),
    (crowded, {(("shard", "0"), ("stage", "presenter")): 1}),
    (crowded, {(): 97}),
    (idle_gpus, {(("resource", GPU),): 4}),
)


@pytest.mark.parametrize(
    ("question", "case"), [*zip(QUESTIONS, ASKED, strict=True)], ids=[each.text for each in QUESTIONS]
)
def test_a_question_on_call_is_answered_by_one_query(question: Any, case: Any) -> None:
    made, wanted = case[0](), case[1]
    answer = made.recorded.ask(question.query)
    for key, value in wanted.items():
        assert answer.get(key) == pytest.approx(value, abs=0.1), f"{question.query}: {answer}"


def test_a_good_day_is_silent() -> None:
    made = watched(beginning())
    for hour in range(24):
        name = f"job{hour}"
        made.scene.lines(f"job {name} cpu=4", f"resumed {name}", f"cluster {name}", f"pod {name} 0", f"runs {name}")
        made.minutes(40)
        made.scene.lines(f"finishes {name}", f"cluster-gone {name}", f"pod-gone {name} 0")
        made.minutes(20)
        assert not made.fired(), hour
    assert made.recorded.ask("sum(muster_admitted_workloads_total)") == {(): 24}


def no_leader(made: Watched) -> None:
    made.of("presenter").role("standby", 0)


def lagging(made: Watched) -> None:
    made.publisher.unfolded_since = made.scene.bench.now - 5_000


def stale(made: Watched) -> None:
    made.of("watcher").ready("pods", ready=False, why="it ended")


def full(made: Watched) -> None:
    made.metrics.set("muster_log_fill_percent", (), 81)


def void(made: Watched) -> None:
    for _ in range(6):
        stored = made.scene.bench.log[-1]
        made.of("keeper").voided(Stored(stored.seq, stored.commit, void=problem("", "no_such_seat", seat="x")))


def diverged(made: Watched) -> None:
    made.of("keeper").note("error", "log_rolled_over", snapshots_unlike=["actuator/0 at 9"])


def half_full(made: Watched) -> None:
    made.metrics.set("muster_store_fill_percent", labels(stream="OBJ_x"), 50)


def flooded(made: Watched) -> None:
    made.of("keeper").note("error", "log_stage_closed", stage="preemptor", bytes=2 << 30, seconds=600)


def broken(made: Watched) -> None:
    made.of("keeper").violated([Violation("I1", "used is 4 and the charges make 5")])


def circling(made: Watched) -> None:
    for _ in range(5):
        for _ in range(200):
            made.of(SORTER).unprovoked()
        made.minutes(1)


def set_aside(made: Watched) -> None:
    commits = [stored.commit for stored in made.scene.bench.log]
    refuses = (each for each in commits if any(isinstance(event, WorkloadRefused) for event in each.events))
    made.of(SORTER).appended(next(refuses), 1, 0.1)


def nothing(_made: Watched) -> None:
    pass


def storm(made: Watched) -> None:
    one = next(each for each in made.published if isinstance(each, PublicWorkloadEvicted))
    for _ in range(12):
        made.of("publisher").published(one)


def over() -> Watched:
    return watched(SCENES["Running, beyond its grant"]()[0])


def owed() -> Watched:
    return watched(claimed(paused="evictions"))


def troubled(cause: Cause) -> Callable[[Watched], None]:
    def breaks(made: Watched) -> None:
        made.keepers.append(SimpleNamespace(fills=[], guard=SimpleNamespace(troubles=[ServerTrouble(cause, "nats-1")])))

    return breaks


FAULTS: dict[str, tuple[Callable[[], Watched], Callable[[Watched], None], int]] = {
    "NoLeader": (lambda: watched(beginning()), no_leader, 2),
    "StageLag": (lambda: watched(beginning()), lagging, 3),
    "WatchStale": (lambda: watched(beginning()), stale, 7),
    "NoAdmissionsWhileCapacityFree": (idle_gpus, nothing, 0),
    "GuaranteeUnserved": (owed, nothing, 30),
    "AdmittedButNoPods": (lambda: watched(beginning("job one", "resumed one")), nothing, 4),
    "PodsHeldUp": (lambda: watched(held_up("ImagePullBackOff")[0]), nothing, 20),
    "EvictionStorm": (evicted, storm, 1),
    "Overuse": (over, nothing, 12),
    "LogNearFull": (lambda: watched(beginning()), full, 7),
    "StoreHalfFull": (lambda: watched(beginning()), half_full, 7),
    "NatsServer": (lambda: watched(beginning()), troubled("down"), 2),
    "LogCopyDamaged": (lambda: watched(beginning()), troubled("hole"), 7),
    "LogCopiesLost": (lambda: watched(beginning()), troubled("lost"), 1),
    "VoidCommits": (lambda: watched(beginning()), void, 1),
    "ReplayDivergence": (lambda: watched(beginning()), diverged, 1),
    "StageClosed": (lambda: watched(beginning()), flooded, 1),
    "SetAside": (lambda: watched(refused("set_aside")[0]), set_aside, 0),
    "CommitsWithoutFacts": (lambda: watched(beginning()), circling, 1),
    "Defect": (lambda: watched(beginning()), broken, 1),
}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda each: each.name)
def test_each_alert_is_fired_by_its_fault(alert: Any) -> None:
    make, breaks, minutes = FAULTS[alert.name]
    made = make()
    breaks(made)
    made.minutes(minutes)
    if not minutes:
        made.scrape()
    assert alert.name in made.fired(), made.recorded.ask(alert.query)


def known_names() -> set[str]:
    buckets = {f"{name}{end}" for name in HISTOGRAMS for end in ("_bucket", "_sum", "_count")}
    return {*(f"{name}_total" for name in COUNTERS), *GAUGES, *buckets}


def test_every_query_can_be_read_and_asks_for_what_there_is() -> None:
    made, names = crowded(), known_names()
    queries = [each.query for each in (*ALERTS, *QUESTIONS)]
    queries += [panel.query for _, panels in BOARDS.values() for panel in panels]
    for query in queries:
        made.recorded.ask(query)
        asked = set(re.findall(r"\bmuster_\w+", query))
        assert asked, query
        assert asked <= names, f"{query}: {asked - names}"
    assert len(BOARDS) == 3


def test_the_files_are_what_the_tables_say() -> None:
    for path, text in monitoring.files().items():
        assert (ROOT / path).read_text() == text, f"{path} is stale: run `python -m muster_tools.monitoring`"
    rules = yaml.safe_load((ROOT / "deploy/monitoring/rules.yaml").read_text())["groups"][0]["rules"]
    assert [each["alert"] for each in rules] == [f"Muster{each.name}" for each in ALERTS]
    for name in BOARDS:
        assert json.loads((ROOT / f"deploy/monitoring/{name}.json").read_text())["panels"]


def test_nothing_is_left_out_of_a_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is used is counted in seconds between two readings of the page."""
    made = idle_gpus()
    found = made.recorded.ask("sum(muster_idle_seconds_total)")
    assert found == {(): 50 * 60 * 4}


def test_the_page_is_prometheus_text_and_bounded() -> None:
    made, page = crowded(), crowded().metrics.render().decode()
    read = Recorded()
    read.scrape(page, 0)
    assert read.samples[0].values == made.recorded.samples[-1].values
    assert len(page.splitlines()) <= 300


async def test_the_age_of_a_watch_is_shown() -> None:
    made = watched(beginning())
    made.of("watcher").heard("pods", asyncio.get_running_loop().time() - 200)
    made.scrape()
    assert made.recorded.ask("max(muster_watch_age_seconds) > 180")
