"""Where reclaim is off it is said, by tree, with the reason and the command that enables it."""

from __future__ import annotations

from kit import facts
from kit.scenes import Scene
from muster.core.stage import Folder
from muster.serving.board import board_of, off_in
from muster.serving.boards import record
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.wording.queuewords import reclaim_off
from muster_cli.render.queues import tree_lines


def read(scene: Scene) -> ReadState:
    model = ReadModel()
    state, folder = model.initial(), Folder(model)
    for stored in scene.bench.log:
        folder.fold(state, stored)
    return state


def off(scene: Scene) -> list[tuple[str, bool]]:
    """As the read model knows it, which is as the preemptor decides."""
    state, preemptor = read(scene), scene.bench.states["preemptor"]
    assert state.sight == preemptor.sight
    return [(each.tree, each.declared) for each in off_in(state)]


def test_a_tree_that_says_disabled_and_one_with_work_at_first_sight() -> None:
    scene = Scene()
    scene.tree_of(("a", 4), ("b", 0))
    scene.do(facts.seen(facts.job("before", "b", cpu=4, suspended=False, phase="running")))
    scene.lines("synced")
    assert off(scene) == [("kube-system/elasticquotatree", False)]
    scene.tree_of(("a", 4), ("b", 0), reclaim="enabled")
    assert off(scene) == []
    scene.tree_of(("a", 4), ("b", 0), reclaim="disabled")
    assert off(scene) == [("kube-system/elasticquotatree", True)]


def test_what_starts_around_the_queue_after_the_first_sync_is_no_reason() -> None:
    scene = Scene()
    scene.tree_of(("a", 4), ("b", 0))
    scene.lines("synced")
    scene.do(facts.seen(facts.job("later", "b", cpu=4, suspended=False, phase="running")))
    assert off(scene) == []


def test_the_sentences_name_the_tree_the_reason_and_the_command() -> None:
    told, fix = reclaim_off("kube-system/t", declared=True)
    assert told == "reclaim is off in ElasticQuotaTree kube-system/t: its annotation muster.dev/reclaim is disabled"
    assert "kubectl annotate elasticquotatree -n kube-system t muster.dev/reclaim=enabled --overwrite" in fix
    told, fix = reclaim_off("kube-system/t", declared=False)
    assert "running when it first saw the cluster" in told
    assert "`muster resume evictions`" in fix


def test_the_board_shows_it_below_the_tree() -> None:
    scene = Scene()
    scene.tree_of(("a", 4), ("b", 0))
    scene.do(facts.seen(facts.job("before", "b", cpu=4, suspended=False, phase="running")))
    scene.lines("synced")
    told, fix = reclaim_off("kube-system/elasticquotatree", declared=False)
    said = f"{told[0].upper()}{told[1:]}; {fix}"
    board = board_of(read(scene))
    assert said in " ".join(" ".join(line.plain.split()) for line in tree_lines(board, board.nodes, unicode=True))
    assert record(board, board.nodes)["reclaim_off"] == [said]
