"""``make bench``: every bench in one run, written to docs/performance.md. Takes about ten minutes.

Run: python tests/perf/bench.py [--out FILE] [--note TEXT] [--quick]
"""

import argparse
import asyncio
import os
import platform
import textwrap
import time
from pathlib import Path

import bench_cluster
import bench_decisions
import bench_gangs
import bench_kueue
import bench_log
import bench_pipeline
import bench_placement
import bench_reclaim
import bench_release
import bench_replay
import bench_restart
import psutil
from figures import Progress, Table

from kit.compose import REPOSITORY
from muster.telemetry import logs
from muster_cli.commands.version import nats_server_version

PAGE = REPOSITORY / "docs" / "performance.md"
BUSY_PERCENT = 5.0


async def measure(say: Progress, *, quick: bool) -> list[Table]:
    """Everything; ``quick`` only shows that it runs."""
    rounds = 1 if quick else 3
    small = 20 if quick else 1
    found = [await bench_log.measure(3_000 // small, 60_000 // small, rounds, say)]
    found += await bench_pipeline.measure(10_000 // small, 200, 10 // min(small, 5), rounds, say)
    found.append(await bench_release.measure(2_000 // small, 50, rounds, say))
    waiting = [100, 1_000] if quick else [1_000, 10_000, 50_000]
    found.append(bench_decisions.measure(waiting, 400 // small, rounds, say))
    found.append(bench_placement.measure([100] if quick else [100, 1_000, 5_000], [1, 8, 64, 512], rounds, say))
    folder = bench_placement.traces()
    if folder is not None and not quick:
        found += bench_placement.measure_shares(folder, ["default"], 3, say)
    running = [100, 300] if quick else [1_000, 10_000]
    found += bench_reclaim.measure(running, 10_000 // small, rounds, say)
    say("replay")
    found.append(bench_replay.measure(5_000 // small, rounds))
    found.append(await bench_restart.measure(1_000 if quick else 100_000, 5_000 // small, rounds, say))
    found += await bench_cluster.measure(1_000 // small, rounds, ["lean", "kube-queue"], say)
    found.append(await bench_kueue.measure(10 if quick else 1, 1 if quick else 2, say))
    sizes = [bench_gangs.Size(5, 4), bench_gangs.Size(2, 10)] if quick else bench_gangs.SIZES
    found.append(await bench_gangs.measure(20 if quick else 1_000, sizes, 1 if quick else 2, say))
    return found


def machine() -> str:
    """What it ran on."""
    return "\n".join(
        [
            "| Machine | |",
            "| --- | --- |",
            f"| Processors | {os.cpu_count()} ({processor()}) |",
            f"| Memory | {psutil.virtual_memory().total / 2**30:.0f} GiB |",
            f"| Kernel | {platform.system()} {platform.release()} |",
            f"| Python | {platform.python_version()} |",
            f"| nats-server | {nats_server_version()} |",
            "",
        ]
    )


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def others_percent() -> float:
    """How much of the machine others use, before anything of ours runs."""
    return psutil.cpu_percent(interval=3)


HEAD = """<!-- Written by `make bench`. -->

# Performance

Medians of the rounds, with the lowest and the highest. All of it was measured in one run on one machine, with
everything on it: servers, services, and whatever drives them. Ratios within a run say more than its absolute figures;
on a busy machine those fall by half and more.
"""


def page(tables: list[Table], where: str, when: str, busy: float, note: str) -> str:
    others = "nothing else of weight ran on it" if busy < BUSY_PERCENT else "something else ran on it"
    sentence = f"Measured on {when}. Before the start {busy:.0f} % of the processors were in use: {others}."
    measured = textwrap.fill(f"{sentence} {note}".strip(), 120)
    return "\n".join([HEAD, measured, "", where, *(table.markdown() for table in tables)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--note", default="", help="a sentence on what else ran on the machine")
    parser.add_argument("--quick", action="store_true", help="tiny numbers: only shows that everything runs")
    options = parser.parse_args()
    logs.configure(level="error")
    say = Progress()
    busy, where = others_percent(), machine()
    tables = asyncio.run(measure(say, quick=options.quick))
    when = time.strftime("%Y-%m-%d", time.gmtime())
    options.out.write_text(page(tables, where, when, busy, options.note).rstrip() + "\n")
    for table in tables:
        print(table.title, *table.lines(), sep="\n")
    say(f"wrote {options.out}")


if __name__ == "__main__":
    main()
