"""``make bench``: every bench in one run, written to docs/performance.md. Takes about 25 minutes.

Run: python tests/perf/bench.py [--out FILE] [--note TEXT] [--quick] [--full] [--only BENCH ...]. ``--only`` measures
some benches again and puts their sections in the place of the old ones, each with its own date; ``copies`` runs only
so.
"""

import argparse
import asyncio
import os
import platform
import sys
import textwrap
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import bench_ask
import bench_cluster
import bench_commands
import bench_copies
import bench_crowd
import bench_decisions
import bench_demand
import bench_events
import bench_gangs
import bench_gateway
import bench_guard
import bench_judge
import bench_kai
import bench_kueue
import bench_log
import bench_moments
import bench_month
import bench_page
import bench_pipeline
import bench_placement
import bench_placing
import bench_quality
import bench_ray
import bench_raypairs
import bench_reader
import bench_reclaim
import bench_release
import bench_replay
import bench_restart
import bench_scoreboard
import bench_simulate
import bench_store
import psutil
from figures import Grid, Progress, Table

from kit.compose import REPOSITORY
from muster.telemetry import logs
from muster_cli.commands.version import nats_server_version

Tables = Sequence[Table | Grid]

PAGE = REPOSITORY / "docs" / "performance.md"
BUSY_PERCENT = 5.0


@dataclass(frozen=True)
class Size:
    """How much of everything: ``quick`` only shows that it runs."""

    quick: bool
    rounds: int
    small: int
    """what counts are divided by"""
    full: bool = False
    """the scoreboard with ten copies of 1,000 jobs"""


async def _decisions(size: Size, say: Progress) -> list[Table]:
    waiting = [100, 1_000] if size.quick else [1_000, 10_000, 50_000]
    return [bench_decisions.measure(waiting, 400 // size.small, size.rounds, say)]


async def _events(size: Size, say: Progress) -> list[Table]:
    return [bench_events.measure(bench_events.SMALL if size.quick else bench_events.Size(), say)]


async def _placement(size: Size, say: Progress) -> list[Table]:
    nodes = [100] if size.quick else [100, 1_000, 5_000]
    found = [bench_placement.measure(nodes, [1, 8, 64, 512], size.rounds, say)]
    folder = bench_placement.traces()
    if folder is not None and not size.quick:
        found += bench_placement.measure_shares(folder, ["default"], 3, say)
    return found


async def _reclaim(size: Size, say: Progress) -> list[Table]:
    running = [100, 300] if size.quick else [1_000, 10_000]
    return bench_reclaim.measure(running, 10_000 // size.small, size.rounds, say)


async def _kai(size: Size, say: Progress) -> list[Table]:
    nodes, many = ([5, 10], 5) if size.quick else ([100, 500, 1_000], 500)
    return bench_kai.measure(nodes, many, 1 if size.quick else 3, say)


async def _ray(size: Size, say: Progress) -> list[Table]:
    counts = [1, 5] if size.quick else [1, 50, 500]
    many, large, rounds = (5, 40, 1) if size.quick else (500, 1_000, 3)
    return [
        bench_ray.measure(counts, size.rounds, say),
        bench_ray.measure_large(rounds, say),
        bench_ray.measure_together(many, large, rounds, say),
        bench_raypairs.measure_pairs(counts, say),
    ]


async def _replay(size: Size, say: Progress) -> list[Table]:
    say("replay")
    return [bench_replay.measure(5_000 // size.small, size.rounds)]


async def _restart(size: Size, say: Progress) -> list[Table]:
    live = 1_000 if size.quick else 100_000
    return [await bench_restart.measure(live, 5_000 // size.small, size.rounds, say)]


async def _ask(size: Size, say: Progress) -> list[Table]:
    waiting, events = (500, 20_000) if size.quick else (10_000, 1_000_000)
    return [await bench_ask.measure(waiting, events, size.rounds, say)]


async def _commands(size: Size, say: Progress) -> list[Table]:
    return [await bench_commands.measure(1_200 if size.quick else 40_000, size.rounds, say)]


async def _gateway(size: Size, say: Progress) -> Tables:
    waiting, nodes, commits = (300, 20, 3_000) if size.quick else (10_000, 1_000, 200_000)
    folder = None if size.quick else bench_placement.traces()
    return [
        await bench_gateway.measure(waiting, nodes, 1, say),
        await bench_crowd.measure(waiting, nodes, *((100, 20, 2) if size.quick else (2_000, 200, 8)), say),
        await bench_page.measure(waiting, nodes, 1, say, 0.5 if size.quick else bench_page.WATCHED_S),
        await bench_moments.measure(waiting, commits, 20, say),
        *([bench_month.measure(folder, 2, say)] if folder is not None else []),
    ]


async def _gangs(size: Size, say: Progress) -> list[Table]:
    sizes = [bench_gangs.Size(5, 4), bench_gangs.Size(2, 10)] if size.quick else bench_gangs.SIZES
    return [await bench_gangs.measure(20 if size.quick else 1_000, sizes, 1, say)]


async def _simulate(size: Size, say: Progress) -> Tables:
    folder = bench_placement.traces()
    if folder is None or size.quick:
        return []
    return [bench_simulate.measure(folder, 1, say), *bench_quality.measure(folder, say)]


async def _scoreboard(size: Size, say: Progress) -> Tables:
    if size.full:
        return bench_scoreboard.measure(bench_scoreboard.FAMILIES, 10, 1000, os.cpu_count() or 1, say)
    copies, jobs = (1, 40) if size.quick else (4, 250)
    return bench_scoreboard.measure(bench_scoreboard.FAMILIES, copies, jobs, 1, say)


async def _copies(size: Size, say: Progress) -> Tables:
    folder = bench_placement.traces()
    if folder is None or size.quick:
        return []
    return [bench_copies.measure(folder, bench_copies.TRACES, bench_copies.COPIES, os.cpu_count() or 1, say)]


async def _log(size: Size, say: Progress) -> list[Table]:
    return [
        await bench_log.measure(3_000 // size.small, 60_000 // size.small, size.rounds, say),
        bench_judge.measure(5_000 // size.small, size.rounds, say),
        await bench_reader.measure(1_000 // size.small, 200, size.rounds, say),
    ]


async def _store(size: Size, say: Progress) -> list[Table]:
    return bench_store.measure(2, 5, say) if size.quick else bench_store.measure(12, bench_store.MEMBERS, say)


async def _pipeline(size: Size, say: Progress) -> list[Table | Grid]:
    return await bench_pipeline.measure(10_000 // size.small, 200, 1 if size.quick else 10, size.rounds, say)


async def _release(size: Size, say: Progress) -> list[Table]:
    return [await bench_release.measure(2_000 // size.small, 50, size.rounds, say)]


async def _cluster(size: Size, say: Progress) -> list[Table]:
    return await bench_cluster.measure(
        1_000 // size.small, size.rounds, ["lean", "kube-queue"], list(bench_cluster.FORMS), say
    )


async def _guard(size: Size, say: Progress) -> list[Grid]:
    return [await bench_guard.measure(10 if size.quick else 300, say)]


async def _kueue(size: Size, say: Progress) -> list[Table | Grid]:
    return await bench_kueue.measure(10 if size.quick else 1, 1 if size.quick else 2, say)


async def _placing(size: Size, say: Progress) -> list[Table]:
    return await bench_placing.measure(1, say, small=6 if size.quick else 1)


async def _demand(size: Size, say: Progress) -> list[Table]:
    clusters, seconds = ([1, 5], 0.3) if size.quick else ([1, 50], 3.0)
    return await bench_demand.measure(clusters, seconds, size.rounds, say)


BENCHES: dict[str, Callable[[Size, Progress], Awaitable[Tables]]] = {
    "log": _log,
    "store": _store,
    "pipeline": _pipeline,
    "release": _release,
    "decisions": _decisions,
    "events": _events,
    "placement": _placement,
    "reclaim": _reclaim,
    "kai": _kai,
    "ray": _ray,
    "replay": _replay,
    "restart": _restart,
    "ask": _ask,
    "commands": _commands,
    "gateway": _gateway,
    "demand": _demand,
    "simulate": _simulate,
    "scoreboard": _scoreboard,
    "copies": _copies,
    "cluster": _cluster,
    "guard": _guard,
    "kueue": _kueue,
    "gangs": _gangs,
    "placing": _placing,
}
"""In the order of the page."""
ALONE = frozenset({"copies"})
"""Those that take an hour and more: only when they are named."""


async def measure(
    only: Sequence[str], say: Progress, *, quick: bool, full: bool = False
) -> tuple[Tables, dict[str, Exception]]:
    """What ``only`` names, in the order of the page, and what came between in benches that did not end."""
    size = Size(quick, 1, 20) if quick else Size(quick, 3, 1, full)
    found: list[Table | Grid] = []
    failed: dict[str, Exception] = {}
    for name, bench in BENCHES.items():
        if name not in only:
            continue
        try:
            found += await bench(size, say)
        except Exception as err:
            failed[name] = err
            say(f"{name} did not end: {type(err).__name__} {err}; the others go on")
            traceback.print_exception(err)
    return found, failed


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

Medians of the rounds, with the lowest and the highest. All of it was measured on one machine, with everything on it:
servers, services, and whatever drives them; in one run, but for sections that name a date of their own. Ratios within a
run say more than its absolute figures; on a busy machine those fall by half and more.
"""


def circumstances(busy: float, note: str) -> str:
    """When, and how busy the machine was."""
    when = time.strftime("%Y-%m-%d", time.gmtime())
    others = "nothing else of weight ran on it" if busy < BUSY_PERCENT else "something else ran on it"
    return f"Measured on {when}. Before the start {busy:.0f} % of the processors were in use: {others}. {note}".strip()


def page(tables: Tables, where: str, said: str) -> str:
    return "\n".join([HEAD, textwrap.fill(said, 120), "", where, *(table.markdown() for table in tables)])


def mended(old: str, tables: Tables, said: str) -> str:
    """The page with the sections of these tables replaced, or put at its end."""
    head, *sections = old.rstrip().split("\n## ")
    kept = {section.partition("\n")[0]: section for section in sections}
    for table in tables:
        again = table._replace(about=f"{table.about} {said}")
        kept[table.title] = again.markdown().removeprefix("## ").rstrip() + "\n"
    return "\n## ".join([head, *kept.values()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--note", default="", help="a sentence on what else ran on the machine")
    parser.add_argument("--quick", action="store_true", help="tiny numbers: only shows that everything runs")
    parser.add_argument("--full", action="store_true", help="the scoreboard with ten copies of 1,000 jobs: an hour")
    parser.add_argument("--only", nargs="+", choices=tuple(BENCHES), help="these benches alone, put into the page")
    options = parser.parse_args()
    logs.configure(level="error")
    say = Progress()
    busy, where = others_percent(), machine()
    tables, failed = asyncio.run(
        measure(options.only or tuple(BENCHES.keys() - ALONE), say, quick=options.quick, full=options.full)
    )
    said = circumstances(busy, options.note)
    some = options.only or failed
    old = options.out.read_text() if some and options.out.exists() else HEAD
    text = mended(old, tables, said) if some else page(tables, where, said)
    options.out.write_text(text.rstrip() + "\n")
    for table in tables:
        print(table.title, *table.lines(), sep="\n")
    say(f"wrote {options.out}")
    if failed:
        sys.exit(f"without {', '.join(failed)}: what stood there before stays")


if __name__ == "__main__":
    main()
