"""Who comes before the nodes that a gang has claimed, and the life of a claim that comes with held quota."""

from __future__ import annotations

from kit import facts
from kit.scenes import Scene
from muster.events.base import Event
from muster.events.claims import ClaimOpened
from muster.events.decisions import GangAdmitted
from muster.events.gangs import NodesClaimed, NodesClaimEnded
from muster.model.quota import WIDTHS_TO_AGE

LEAST = 4
"""The cores that queue a is guaranteed; queue b only borrows."""


def cluster(most: int, *nodes: int) -> Scene:
    """Two queues below a quota of so many cores, and nodes of so many each."""
    scene = Scene()
    leaves = (
        facts.node("a", {"cpu": LEAST}, {"cpu": most}, ("a",)),
        facts.node("b", {"cpu": 0}, {"cpu": most}, ("b",)),
    )
    scene.do(facts.tree(facts.node("root", {"cpu": most}, {"cpu": most}, children=leaves)))
    scene.lines("placement pack hold=36000", *(f"node n{index} cpu={cpu}" for index, cpu in enumerate(nodes)), "synced")
    return scene


def told(scene: Scene, *kinds: type[Event]) -> list[tuple[str, str]]:
    return [(type(event).__name__, event.ref.name) for event in scene.bench.happened(*kinds)]


def nodes_of(scene: Scene, name: str) -> list[str]:
    return [
        place.node
        for event in scene.bench.happened(GangAdmitted)
        if event.ref.name == name
        for place in event.placements
    ]


def test_a_job_within_a_guarantee_is_placed_on_nodes_that_a_borrower_has_claimed() -> None:
    """The guarantee is not void because many borrowers passed another."""
    scene = cluster(20, 4, 4, 1)
    scene.lines("gang b/s0 head=4 workers=0x0", "gang b/s1 head=4 workers=0x0")
    scene.lines("gang b/big head=2 workers=1x4", "time +1s", "gang b/tiny head=1 workers=0x0")
    scene.lines(f"follow b/tiny head=1 workers=0x0 times={6 * WIDTHS_TO_AGE}")
    assert told(scene, NodesClaimed) == [("NodesClaimed", "big")]
    scene.lines("gone b/s0", "gang b/late head=4 workers=0x0")
    assert nodes_of(scene, "late") == []
    scene.lines("gang a/due head=4 workers=0x0")
    assert nodes_of(scene, "due") == nodes_of(scene, "s0")
    assert told(scene, NodesClaimEnded) == []
    scene.lines("gone b/s1", "gone a/due")
    assert len(nodes_of(scene, "big")) == 2
    scene.bench.sound()


def test_a_job_for_which_quota_is_held_for_its_age_claims_nodes_with_its_first_search_in_vain() -> None:
    """It is not passed a second time, on the nodes, before it claims nodes."""
    scene = cluster(9, 4, 4)
    for index in range(4):
        scene.lines(f"gang b/s{index} head=2 workers=0x0")
    scene.lines(
        "gang b/big head=1 workers=1x4",
        "time +60s",
        *(f"follow b/s{index} head=2 workers=0x0 times=1" for index in range(3)),
        f"follow b/s3 head=2 workers=0x0 times={5 * WIDTHS_TO_AGE // 2 - 3}",
    )
    assert told(scene, ClaimOpened, NodesClaimed) == [("ClaimOpened", "big")]
    first = {name: nodes_of(scene, scene.jobs[f"b/{name}"].ref.name)[0] for name in ("s0", "s1", "s2")}
    beside = next(name for name in ("s1", "s2") if first[name] != first["s0"])
    scene.lines("gone b/s0", f"gone b/{beside}")
    assert told(scene, ClaimOpened, NodesClaimed) == [("ClaimOpened", "big"), ("NodesClaimed", "big")]
    scene.lines("gang b/late head=2 workers=0x0")
    assert nodes_of(scene, "late") == []
    scene.lines(f"gone b/{({'s1', 's2'} - {beside}).pop()}")
    assert len(nodes_of(scene, "big")) == 2
    scene.bench.sound()
