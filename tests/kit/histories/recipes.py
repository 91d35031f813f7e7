"""How each recorded history comes about: from a test that plays it, a scene, or a trace in virtual time.

Every recipe gives the same log whenever it is played: all that is drawn in it comes from a seed.
"""

from __future__ import annotations

import csv
import importlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Literal
from unittest.mock import patch

from msgspec import Struct
from msgspec.structs import replace

from kit import scenario as scenario_text
from kit import shell, traces
from kit.bench import Bench
from kit.consolidating import Consolidating
from kit.disorder import DisorderedCell
from kit.podgangs import Chance
from kit.raylives import RayLife
from kit.turmoil import Turmoil
from muster.events.envelope import Stored
from muster.events.system import PlacementChosen
from muster.fakecluster.deviceplugin import DevicePlugin
from muster.fakecluster.kuberay.settings import OperatorSettings
from muster.fakecluster.world import SimCluster
from muster.runtime.logkeeping.logfile import read_log
from muster.tracesim.faults import NO_FAULTS, FaultSchedule
from muster.tracesim.jobsfile import read_trace
from muster.tracesim.model import Trace
from muster.tracesim.runner import MUSTER, Options, simulate
from muster_cli import samples
from muster_cli.local.cluster import NODES, RESOURCES
from muster_cli.local.stories import STORIES

Log = list[Stored]
Manner = Literal["calm", "runners", "wild"]
TESTS = Path(__file__).parents[2]
COLUMNS = ("job_id", "vc", "gpus", "submit_s", "duration_s")


class Recipe(Struct, frozen=True):
    """``play`` gives the log. ``manner``: what can be asked of it beyond its decisions.

    calm: every stage decides at once and each deadline is met exactly, so silences and deadlines are judged too.
    runners: as live; nothing more is asked. wild: facts are repeated and reordered too, so I11 is not asked.
    """

    play: Callable[[], Log]
    manner: Manner = "calm"


# --- tests ---------------------------------------------------------------------------------------------------------


@contextmanager
def captured() -> Iterator[list[Any]]:
    """Every bench and cell that is made meanwhile."""
    made: list[Any] = []
    with patch_init(Bench, made), patch_init(DisorderedCell, made), patch_init(shell.Cell, made):
        yield made


@contextmanager
def patch_init(kind: type, made: list[Any]) -> Iterator[None]:
    plain = kind.__init__  # type: ignore[misc]

    def init(self: Any, *args: Any, **options: Any) -> None:
        made.append(self)
        plain(self, *args, **options)

    with patch.object(kind, "__init__", init):
        yield


def test(of: str, **options: Any) -> Callable[[], Log]:
    """What a test plays: ``folder/module::name``. The longest log, where it plays several."""

    def play() -> Log:
        function = function_of(of)
        with captured() as made:
            function(**options)
        logs: list[Log] = [each.commits() if isinstance(each, shell.Cell) else list(each.log) for each in made]
        return max(logs, key=len)

    play.__doc__ = of
    return play


def function_of(of: str) -> Callable[..., None]:
    """The function of a test."""
    place, _, name = of.partition("::")
    path = TESTS / place
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    found: Callable[..., None] = getattr(importlib.import_module(path.name), name)
    return found


def real(of: str) -> Callable[[], Log]:
    """What an end-to-end test plays on real parts, as it was exported for the proof: another one each time."""

    def play() -> Log:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pytest", "-q", f"--basetemp={folder}/base", f"tests/{of}"]
            ran = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
            assert ran.returncode == 0, ran.stdout[-2000:]
            logs = sorted(Path(folder).rglob("log.jsonl.gz"), key=lambda path: path.stat().st_size)
            assert logs, f"{of} exports no log"
            return list(read_log(logs[-1]))

    return play


# --- scenes and random histories -------------------------------------------------------------------------------------


def scene(make: Callable[[], tuple[Any, str]], hours: int = 0) -> Callable[[], Log]:
    """``hours``: how long it goes on while nothing else happens."""

    def play() -> Log:
        bench = make()[0].bench
        if hours:
            bench.pass_time(hours * 3_600_000)
        return list(bench.log)

    return play


def scenario(path: Path) -> Callable[[], Log]:
    """A file of tests/scenarios."""

    def play() -> Log:
        with captured() as made:
            scenario_text.play(path)
        return list(made[0].log)

    return play


def lines(*texts: str) -> Callable[[], Log]:
    """Input lines of a scenario, one after the other."""
    return lambda: list(scenario_text.scene_of(*texts).bench.log)


def slug(text: str) -> str:
    """``InsufficientQuota, evicted`` -> ``insufficient-quota-evicted``."""
    return "-".join(each.lower() for each in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", text))


def turmoil(kind: type[Turmoil], seed: int) -> Callable[[], Log]:
    def play() -> Log:
        found = kind(seed)
        found.run()
        return found.bench.log

    return play


def ray_life(seed: int, queues: str, *, wild: bool) -> Callable[[], Log]:
    def play() -> Log:
        life = RayLife(seed, queues=queues, wild=wild)
        for _ in range(60):
            life.step()
        life.settle()
        return life.play.cell.log

    return play


def consolidating(seed: int) -> Callable[[], Log]:
    def play() -> Log:
        found = Consolidating(seed)
        found.play()
        found.peace()
        return found.cell.log

    return play


def demo(name: str) -> Callable[[], Log]:
    """A story of ``muster up``: its manifests on its cluster, for ten minutes."""

    def play() -> Log:
        story = STORIES[name]
        cluster = SimCluster(
            NODES,
            kuberay=OperatorSettings(batch_scheduler="kai-scheduler" if story.kai else ""),
            others=(DevicePlugin(),) if story.kai else (),
            suspend_new=story.kai,
        )
        placement = PlacementChosen(mode=story.placement)
        cell = DisorderedCell(cluster, kinds=("RayJob", "RayCluster"), placement=placement)
        for sample in (*story.first, *story.jobs):
            for made in samples.manifests(sample):
                resource = RESOURCES[made["apiVersion"], made["kind"]]
                path = resource.path(made["metadata"].get("namespace", ""))
                answer = cluster.server.handle("POST", path, body=json.dumps(made).encode())
                assert answer.ok, answer.body
            cell.advance(1_000)
        cell.advance(600_000)
        return cell.log

    return play


def pod_gangs(seed: int) -> Callable[[], Log]:
    def play() -> Log:
        chance = Chance(Random(seed))
        chance.run(150)
        chance.peace()
        return chance.bench.log

    return play


# --- traces ----------------------------------------------------------------------------------------------------------


def trace(
    made: Callable[[Path], Trace], *, placement: str = "off", faults: FaultSchedule = NO_FAULTS, **rules: str
) -> Callable[[], Log]:
    """Jobs in virtual time through the real stages; ``rules`` of the tree as ``reclaim_grace="15m"``."""
    return lambda: of_trace(made, placement, faults, rules)


def of_trace(made: Callable[[Path], Trace], placement: str, faults: FaultSchedule, rules: Mapping[str, str]) -> Log:
    log: Log = []
    with tempfile.TemporaryDirectory() as folder:
        found = made(Path(folder))
    ruled = {name.replace("_", "-"): text for name, text in rules.items()}
    cluster = replace(found.cluster, placement=placement, rules={**found.cluster.rules, **ruled})
    simulate(Trace(cluster, found.jobs), MUSTER, Options(faults=faults), alone={}, hears=log.append)
    return log


def philly(jobs: int, nodes: int) -> Callable[[Path], Trace]:
    """The first jobs of the sample on some nodes of eight GPUs; each queue has an equal part."""

    def made(folder: Path) -> Trace:
        gpus = nodes * 8
        with (traces.SAMPLES / "philly_sample.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if int(row["gpus"]) <= gpus][:jobs]
        names = sorted({row["vc"] for row in rows})
        queues = {name: {"min": gpus // len(names), "max": gpus} for name in names}
        cluster = {"nodes": [{"count": nodes, "gpus": 8}], "queues": queues}
        lines = (",".join(row[name] for name in COLUMNS) for row in rows)
        return traces.trace(folder, cluster, "\n".join(lines))

    return made


def testbed(jobs: int) -> Callable[[Path], Trace]:
    """The first jobs of the testbed of 64 GPUs; many are gangs of a whole node or more."""

    def made(folder: Path) -> Trace:
        found = read_trace(*traces.muri(traces.SAMPLES / "testbed_64gpu.csv", folder))
        return Trace(found.cluster, found.jobs[:jobs])

    return made


def whole(made: Callable[[Path, Path], tuple[Path, Path]]) -> Callable[[Path], Trace]:
    """A whole trace, where MUSTER_TEST_TRACES says it is."""
    return lambda folder: read_trace(*made(traces.full_traces(), folder))
