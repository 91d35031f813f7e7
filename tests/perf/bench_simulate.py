"""How long a public trace takes in virtual time: two weeks of Philly, 26,936 jobs; MUSTER_TEST_TRACES names its folder.

Run: python tests/perf/bench_simulate.py [--rounds 1]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import Progress, Table

from kit.traces import philly
from muster.tracesim.runner import ALL

TITLE = "Simulating two weeks of the Philly trace"


def measure(traces: Path, rounds: int, say: Progress) -> Table:
    found = []
    for number in range(rounds):
        say(f"simulate: round {number + 1} of {rounds}")
        found.append(_round(traces))
    about = (
        f"`muster simulate` of 26,936 jobs on 448 GPUs, with everything it writes: with Muster's own stages, and the "
        f"table of all {len(ALL)} policies. In brackets the mean completion time that an independent simulator of the "
        "same trace finds."
    )
    return Table(TITLE, about, found)


def _round(traces: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = philly(traces, folder)
        alone = _simulate(files, folder / "alone", "muster")
        table = _simulate(files, folder / "table", "all")
        shortest = json.loads((folder / "table" / "srtf" / "summary.json").read_text())["metrics"]["jct_mean_s"]
        own = json.loads((folder / "alone" / "summary.json").read_text())["metrics"]["jct_mean_s"]
    return {
        "with the real stages, s": alone,
        f"table of {len(ALL)} policies, s": table,
        "mean completion time, srtf, s (9,774)": shortest,
        "mean completion time, muster, s": own,
    }


def _simulate(files: tuple[Path, Path], out: Path, policy: str) -> float:
    """Seconds."""
    cluster, jobs = files
    argv = ["simulate", "--cluster", str(cluster), "--jobs", str(jobs), "--out", str(out), "--policy", policy]
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "muster_cli", *argv], check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    from bench_placement import traces

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    folder = traces()
    if folder is None:
        sys.exit("MUSTER_TEST_TRACES names no folder of public traces")
    table = measure(folder, parser.parse_args().rounds, Progress())
    print(table.title, table.about, *table.lines(), sep="\n")


if __name__ == "__main__":
    main()
