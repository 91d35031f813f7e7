"""The walk of docs/architecture.md, from a queue below its min to the order, is true: its files, and its commits."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from muster.runtime.logkeeping.logfile import read_log
from muster.tracesim.jobsfile import read_trace
from muster.tracesim.runner import Options, simulate

ROOT = Path(__file__).parents[3]
MOST_FILES, COMMITS = 6, {20: "preemption_proposed", 21: "eviction_ordered"}


def section() -> str:
    page = (ROOT / "docs" / "architecture.md").read_text()
    return page.partition("## From a queue below its min to the order")[2].partition("\n## ")[0]


def test_six_files_decide_and_each_has_the_functions_of_the_walk() -> None:
    rows = re.findall(r"\| `(\S+\.py)` \| (.+) \|", section())
    assert 0 < len({file for file, _ in rows}) <= MOST_FILES
    for file, names in rows:
        tree = ast.parse((ROOT / "libs/muster/core" / file).read_text())
        known = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert set(re.findall(r"`(\w+)`", names)) <= known, file


def test_two_commits_after_the_refusal_the_order_is_in_the_log(tmp_path: Path) -> None:
    for name, text in re.findall(r"```\w+ (\S+)\n(.*?)```", section(), re.DOTALL):
        (tmp_path / name).write_text(text)
    trace = read_trace(tmp_path / "cluster.json", tmp_path / "jobs.csv")
    simulate(trace, "muster", Options(), log=tmp_path / "log.jsonl")
    commits = {stored.seq: stored.commit for stored in read_log(tmp_path / "log.jsonl")}
    told = {seq: [type(event).__struct_config__.tag for event in commits[seq].events] for seq in (19, *COMMITS)}
    assert told == {19: ["quota_denied"], **{seq: [name] for seq, name in COMMITS.items()}}
    assert all(f"--at {seq}" in section() for seq in COMMITS)
