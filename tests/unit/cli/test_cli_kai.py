"""``muster quota lint`` and ``diff`` of KAI queues in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit import nodes
from kit.bench import Bench
from kit.facts import seen
from kit.kai import queue, work
from muster.core.stage import Folder
from muster.serving.board import board_of
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster_cli import samples
from muster_cli.exits import CliError
from muster_cli.quotadiff import difference, with_queues
from muster_cli.quotafiles import read_trees
from muster_cli.render.queues import tree_lines
from muster_cli.render.quotas import diff_lines, lint_lines

TEAM = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: NAME}
spec:
  parentQueue: "PARENT"
  resources:
    gpu: {quota: QUOTA, limit: -1, overQuotaWeight: 1}
    cpu: {quota: -1, limit: -1}
    memory: {quota: -1, limit: -1}
"""


def team(name: str, parent: str, quota: str) -> str:
    return TEAM.replace("NAME", name).replace("PARENT", parent).replace("QUOTA", quota)


def linted(path: Path, text: str) -> list[str]:
    path.write_text(text)
    (found,) = read_trees(path)
    return [line.plain for line in lint_lines(found)]


def test_the_queues_of_the_sample_are_fine(tmp_path: Path) -> None:
    said = linted(tmp_path / "queues.yaml", samples.text(samples.KAI_QUEUES))
    assert said == [f"ok       the KAI queues of {tmp_path}/queues.yaml: 3 nodes"]


def test_an_orphan_and_a_bad_number_are_told_with_the_way_out(tmp_path: Path) -> None:
    text = f"{team('lost', 'nowhere', '1')}---{team('odd', '', '-2')}"
    said = " ".join(linted(tmp_path / "queues.yaml", text))
    assert "lost: parentQueue 'nowhere' does not exist" in said
    assert "odd: spec.resources: quota -2 of nvidia.com/gpu is no amount; write 0 or more, or -1" in said
    assert said.endswith("2 of its queues would be disabled with the queues below them, the others count")


def test_a_file_without_either_is_said(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n")
    with pytest.raises(CliError, match=r"no ElasticQuotaTree, and no Queue of scheduling\.run\.ai/v2"):
        read_trees(path)


def view() -> ReadState:
    """Two queues of which one waits for more than its quota."""
    bench = Bench()
    bench.facts(nodes.node("n1", cpu=64, memory=256, gpu=8))
    bench.facts(queue("d"), queue("a", "d", gpu=(1, -1, 1)), queue("b", "d"))
    bench.synced()
    bench.settle()
    bench.facts(seen(work("firm", "a", priority_class="build", gpu=2)))
    bench.settle()
    model = ReadModel()
    folder, state = Folder(model), model.initial()
    for stored in bench.log:
        folder.fold(state, stored)
    return state


def test_a_diff_changes_what_the_file_names_and_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "queues.yaml"
    path.write_text(f"{team('a', 'd', '2')}---{team('c', 'd', '0')}")
    (found,) = read_trees(path)
    state = view()
    shown = difference(state, with_queues(state, found.queues), found.rules)
    assert (shown.added, shown.removed) == (["kai/d/c"], [])
    assert [
        (each.path, each.what, each.before, each.after) for each in shown.changed if each.what.startswith("min")
    ] == [("kai/d/a", "min nvidia.com/gpu", "1", "2")]
    assert [each.job for each in shown.fits] == ["default/firm"]
    assert any("default/firm" in line.plain for line in diff_lines(shown))


def test_the_tree_says_whose_queues_these_are() -> None:
    board = board_of(view())
    assert tree_lines(board, board.nodes, unicode=False, width=160)[0].plain.startswith("KAI queues, as of sequence")
