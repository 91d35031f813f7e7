"""Change numbers of the core one at a time, and run the tests that are cheapest to notice: ``make mutants``.

A mutant that no test notices survives. ``survivors.txt`` lists those that may; the list only gets shorter.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from kit.mutants.sites import ROOT, VARIABLE, Mutant, mutant_of, mutants

LIST = Path(__file__).with_name("survivors.txt")
LONG = ["tests/sim/tracesim", *sorted(str(path) for path in (ROOT / "tests" / "sim").glob("*_props.py"))]
TESTS = (
    "tests/histories",
    "tests/scenarios",
    "tests/unit/core",
    "tests/unit/told",
    "tests/unit/audit",
    "tests/unit/tracesim",
    "tests/properties",
    *LONG,
)
"""The cheapest first: the first failure is enough."""
EACH_S = 900


def listed() -> dict[Mutant, str]:
    """{survivor: its line} of the list; what follows a # says why it may."""
    lines = [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    return {mutant_of(line.partition("#")[0]): line for line in lines}


def noticed(mutant: Mutant) -> str:
    """The test that fails first; empty where none does."""
    environment = {**os.environ, VARIABLE: str(mutant), "PYTHONPATH": str(ROOT / "tests")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "kit.mutants.planted",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        *TESTS,
    ]
    try:
        ran = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=EACH_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no end within {EACH_S} s"
    if ran.returncode == 0:
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    return found[1] if found else (ran.stdout + ran.stderr)[-300:]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kit.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=12, help="how many are drawn; 12 unless said")
    parser.add_argument("--seed", type=int, default=0, help="draws them")
    parser.add_argument("--only", default="", help="only of modules or constants with this in their name")
    parser.add_argument("--minutes", type=float, default=60.0, help="none is begun after that; 60 unless said")
    parser.add_argument("--listed", action="store_true", help="those of the list instead: do they still survive?")
    given = parser.parse_args()
    known, begun = listed(), time.monotonic()
    chosen = sorted(known) if given.listed else mutants()
    chosen = [each for each in chosen if given.only in f"{each.path} {each.scope}"]
    if not given.listed:
        chosen = sorted(Random(given.seed).sample(chosen, min(given.count, len(chosen))))
    wrong, ran, killed = [], 0, 0
    for mutant in chosen:
        if time.monotonic() - begun > given.minutes * 60:
            print(f"no time left for {len(chosen) - ran} of them", flush=True)
            break
        ran, by = ran + 1, noticed(mutant)
        killed += bool(by)
        print(f"{'noticed ' if by else 'SURVIVES'} {mutant}  {by}", flush=True)
        if by and mutant in known:
            wrong.append(f"{mutant} is noticed now: take it off {LIST.relative_to(ROOT)}")
        elif not by and mutant not in known:
            wrong.append(f"{mutant} survives: a test has to notice it")
    print(f"{ran} mutants, {killed} noticed, {len(wrong)} to be mended", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
