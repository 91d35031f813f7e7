"""`make bench` runs and writes its page: with tiny numbers, since figures are for a quiet machine."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from kit.compose import REPOSITORY
from kit.controlplane.build import Binaries

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

SECTIONS = (
    "The log",
    "Judging a commit",
    "What a commit costs a reader",
    "A month of 50,000 RayJobs a day",
    "A month of 50,000 gangs of pods a day",
    "Through all stages, all deciders in one process",
    "Through all stages, all deciders in one process: where its CPU goes",
    "Through all stages, one process per service",
    "Through all stages, one process per service: where its CPU goes",
    "From a release to the next admission",
    "CPU per admission",
    "An event on a large cluster",
    "Placing a gang",
    "Reclaim decision",
    "One queue against many",
    "A gang's fair share, KAI queues",
    "A gang's fair share on nodes, KAI queues",
    "Many small claims, KAI queues",
    "Growth of Ray clusters",
    "Ray clusters that shrink",
    "Many Ray clusters and a large one",
    "What the gate adds to the wait for a worker",
    "Replay",
    "Restart",
    "Ask",
    "Commands",
    "Gateway",
    "Gateway beside a crowd",
    "The dashboard in a browser",
    "Any moment of the past",
    "Reading the demand of Ray clusters",
    "The scoreboard: mean completion",
    "The scoreboard: every figure",
    "On a real API server, profile lean",
    "On a real API server, profile lean, one process",
    "On a real API server, profile kube-queue",
    "On a real API server, profile kube-queue, one process",
    "What the guard costs a request",
    "Kueue's baseline, one fifth",
    "Kueue's baseline, one fifth, one process",
    "Kueue's baseline: where its CPU goes",
    "Gangs of pods on a real API server",
    "Placing, beside KAI",
)


async def bench(*options: str) -> None:
    script = REPOSITORY / "tests" / "perf" / "bench.py"
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), "--quick", *options,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "tests")},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


def sections(page: str) -> list[str]:
    return [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]


async def test_every_bench_runs_and_is_on_the_page(control_plane_binaries: Binaries, tmp_path: Path) -> None:
    out = tmp_path / "performance.md"
    await bench("--out", str(out))
    text = out.read_text()
    assert sections(text) == list(SECTIONS)
    figures = [line for line in text.splitlines() if line.startswith("| ") and " to " in line]
    assert len(figures) > 40
    assert not [line for line in figures if "nan" in line or "inf " in line]

    await bench("--out", str(out), "--only", "replay")
    again = out.read_text()
    assert sections(again) == list(SECTIONS), "a bench measured again stands where it stood"
    assert again.count("Measured on") == text.count("Measured on") + 1
    assert [line for line in again.splitlines() if "Kueue" in line] == [
        line for line in text.splitlines() if "Kueue" in line
    ]


CROWD = """
import asyncio, bench_crowd, json
table = asyncio.run(bench_crowd.measure(10_000, 1_000, 2_000, 200, 8, lambda _: None))
print(json.dumps(table.rounds[0]))
"""


async def test_beside_a_crowd_a_reader_waits_at_most_three_times_as_long_and_memory_is_bounded() -> None:
    paths = os.pathsep.join(str(REPOSITORY / "tests" / name) for name in ("", "perf"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CROWD, env={**os.environ, "PYTHONPATH": paths}, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    figures = json.loads(out)
    for name in ("jobs", "position"):
        alone, beside = (figures[f"{name}, ms, 99 %, {where}"] for where in ("alone", "beside the crowd"))
        assert beside <= 3 * max(alone, 5.0), figures
    assert figures["memory that the crowd takes, MiB"] < 128, figures
    assert figures["messages of a stream a second, beside the crowd"] > 0.1, figures
