"""Trees side by side: each is applied by its own rules, and what ran at first sight matters to its own tree only."""

from __future__ import annotations

import pytest

from kit import facts, kai, nodes
from kit.scenes import Scene
from muster.events.decisions import EvictionOrdered, PreemptionProposed
from muster.model.workload import Workload

GPU = {"cpu": 0, "gpu": 1, "memory": 0}


def runs(scene: Scene, job: Workload) -> None:
    key = job.ref.key
    scene.jobs[key] = job
    scene.do(facts.seen(job))
    scene.runs(key)


def both(**rules: str) -> Scene:
    """An ElasticQuotaTree of eight cores, and two KAI queues on a node of four GPUs."""
    scene = Scene()
    scene.do(nodes.node("n1", cpu=64, memory=256, gpu=4))
    scene.do(kai.queue("team-a", gpu=(2, -1, 1)), kai.queue("team-b", gpu=(2, -1, 1)))
    scene.tree_of(("a", 4), ("b", 0), **rules)
    return scene


def borrowed_gpus(scene: Scene) -> None:
    for index in range(4):
        runs(scene, kai.work(f"x{index}", "team-b", "kai-b", **GPU))


def test_a_tree_that_does_not_reclaim_says_nothing_about_kai_queues() -> None:
    scene = both(reclaim="disabled")
    scene.lines("synced")
    borrowed_gpus(scene)
    scene.do(facts.seen(kai.work("owed", "team-a", "kai-a", **GPU)))
    assert [each.withheld for each in scene.bench.happened(PreemptionProposed)] == [""]
    assert len(scene.bench.happened(EvictionOrdered)) == 1
    scene.bench.sound()


@pytest.mark.parametrize("tree", ["kai", "elastic-quota"])
def test_what_ran_at_first_sight_turns_reclaim_off_in_its_own_tree_only(tree: str) -> None:
    scene = both()
    before = kai.work("before", "team-b", "kai-b", **GPU) if tree == "kai" else facts.job("before", "b", cpu=4)
    scene.do(facts.seen(before, suspended=False, phase="running"))
    scene.lines("synced", f"job b/x cpu={8 if tree == 'kai' else 4}")
    scene.runs("b/x")
    scene.lines("job a/owed cpu=4")
    assert [each.withheld for each in scene.bench.happened(PreemptionProposed)] == [
        "" if tree == "kai" else "reclaim_disabled"
    ]
    scene.bench.sound()


@pytest.mark.parametrize(
    "labels", [{"kai.scheduler/queue": "team-a"}, {"quota.scheduling.alibabacloud.com/name": "none"}]
)
def test_what_runs_with_a_label_that_leads_nowhere_is_charged_to_its_namespace(labels: dict[str, str]) -> None:
    """A namespace of the tree and a queue of KAI at once, or a quota that does not exist: refused, and never free."""
    scene = both()
    scene.lines("synced")
    job = facts.job("around", "a", cpu=4, labels=labels)
    scene.do(facts.seen(job))
    scene.do(facts.seen(job, suspended=False, phase="running"))
    charges = scene.bench.states["quota_accountant"].ledger.charges
    assert {uid: charge.queue for uid, charge in charges.items()} == {job.ref.uid: "root/a"}
    scene.tree_of(("a", 4), ("c", 0))
    assert charges[job.ref.uid].queue == "root/a"
    scene.bench.sound()


def test_a_tree_that_is_deleted_leaves_its_charges_to_the_queue_that_their_jobs_name() -> None:
    scene = both()
    scene.lines("synced")
    job = facts.job("around", "a", cpu=4, labels={"kai.scheduler/queue": "team-a"})
    scene.do(facts.seen(job, suspended=False, phase="running"))
    scene.do(facts.tree_gone())
    state = scene.bench.states["quota_accountant"]
    assert state.entries[job.ref.uid].queue == state.ledger.charges[job.ref.uid].queue == "kai/team-a"
    scene.bench.sound()
