"""The rules that Kueue publishes for flavors, fungibility and borrowing in a cohort, played with its examples' numbers.

Own tests by the sentences of its documentation (ClusterQueue, ResourceFlavor, Cohort): a ClusterQueue is a leaf, its
nominal quota a min, its borrowing limit a max above the min, its list of flavors the attribute of the leaf, and a
cohort the node above. Where Muster differs, the test says so in its name, and docs/explanation/flavors.md says why.
"""

from __future__ import annotations

import json
from typing import Any

from kit import facts
from kit.flavored import Types, flavor, leaf, node
from muster.core.quota.ledger.quotaledger import UNBOUNDED
from muster.events.decisions import WorkloadQueued
from muster.model.placing import GPU, NodeTerm, PodRules, Requirement, Toleration
from muster.model.quota import MACHINES

TYPED = ("cpu", "memory")


def amounts(name: str, cpu: int, memory: str = "") -> dict[str, Any]:
    return {f"cpu@{name}": cpu} | ({f"memory@{name}": memory} if memory else {})


def default(cpu: int, memory: str = "1000Gi") -> dict[str, Any]:
    return amounts("default-flavor", cpu, memory)


ONE = [flavor("default-flavor", nodeLabels={}, resources=TYPED)]
GROUPS = [
    flavor("spot", resources=TYPED),
    flavor("on-demand", resources=TYPED),
    flavor("vendor1"),
    flavor("vendor2"),
]


def groups() -> Types:
    """A ClusterQueue with two groups of resources: spot 9 and 36Gi, on-demand 18 and 72Gi, ten GPUs of each vendor."""
    scene = Types()
    whole = amounts("spot", 9, "36Gi") | amounts("on-demand", 18, "72Gi") | {"vendor1": 10, "vendor2": 10}
    scene.flavors(whole, leaf("cq", whole), of=GROUPS)
    return scene


def teams(a: dict[str, Any] | None = None, **rules: str) -> Types:
    """team-a with 9 CPUs and 36Gi, team-b with 12 and 48Gi, in one cohort. ``a``: the max of team-a."""
    scene = Types()
    least = default(9, "36Gi"), default(12, "48Gi")
    scene.flavors(default(21, "84Gi"), leaf("team-a", least[0], a), leaf("team-b", least[1]), of=ONE, **rules)
    return scene


def test_one_flavor_admits_up_to_its_quota_of_each_resource() -> None:
    scene = Types()
    scene.flavors(default(9, "36Gi"), leaf("cq", default(9, "36Gi")), of=ONE)
    scene.asks("cq/one", {"cpu": 5, "memory": "30Gi"})
    scene.asks("cq/memory", {"cpu": 1, "memory": "7Gi"})
    scene.asks("cq/cpu", {"cpu": 5, "memory": "1Gi"})
    scene.asks("cq/both", {"cpu": 4, "memory": "6Gi"})
    assert scene.on_each("cq", "one", "memory", "cpu", "both") == [
        "default-flavor",
        "",
        "",
        "default-flavor",
    ]


def test_the_number_of_pods_is_a_quota_too() -> None:
    scene = Types()
    scene.flavors(default(9), leaf("cq", default(9), {MACHINES: 5}), of=ONE)
    scene.asks("cq/four", ("main", 4, {"cpu": 1}))
    scene.asks("cq/two", ("main", 2, {"cpu": 1}))
    scene.asks("cq/one", ("main", 1, {"cpu": 1}))
    assert [scene.on(f"cq/{name}") != "" for name in ("four", "two", "one")] == [True, False, True]


def test_the_first_flavor_of_the_list_with_unused_quota_is_assigned() -> None:
    scene = groups()
    for name in ("one", "two", "three"):
        scene.asks(f"cq/{name}", {"cpu": 9})
    scene.asks("cq/four", {"cpu": 1})
    assert scene.on_each("cq", "one", "two", "three", "four") == [
        "spot",
        "on-demand",
        "on-demand",
        "",
    ]


def test_what_is_larger_than_a_flavor_gets_the_next() -> None:
    scene = groups()
    scene.asks("cq/large", {"cpu": 10})
    assert scene.on("cq/large") == "on-demand"


def test_resources_of_one_group_have_the_same_flavor() -> None:
    scene = groups()
    scene.asks("cq/one", {"cpu": 5, "memory": "40Gi"})
    assert scene.on("cq/one") == "on-demand", "the memory does not fit spot, so the CPUs are on-demand too"


def test_groups_are_assigned_independently() -> None:
    scene = groups()
    scene.asks("cq/one", {"cpu": 2, "gpu": 10})
    scene.asks("cq/two", {"cpu": 2, "gpu": 10})
    scene.asks("cq/three", {"cpu": 2, "gpu": 1})
    assert scene.on_each("cq", "one", "two", "three") == ["spot+vendor1", "spot+vendor2", ""]


def test_each_pod_set_is_assigned_by_itself() -> None:
    scene = groups()
    scene.asks("cq/one", ("driver", 1, {"cpu": 4}), ("workers", 3, {"cpu": 2}))
    assert scene.on("cq/one") == "spot on-demand"


def test_a_queue_uses_the_unused_quota_of_its_cohort() -> None:
    scene = teams()
    for index in range(3):
        scene.asks(f"team-a/x{index}", {"cpu": 7, "memory": "28Gi"})
    scene.asks("team-a/more", {"cpu": 1, "memory": "1Gi"})
    assert [scene.on(f"team-a/{name}") != "" for name in ("x0", "x1", "x2", "more")] == [True, True, True, False]


def test_nominal_quota_of_others_goes_before_borrowing() -> None:
    scene = teams()
    scene.asks("team-a/full", {"cpu": 9})
    scene.asks("team-b/run", {"cpu": 12})
    scene.asks("team-a/borrows", {"cpu": 6})
    scene.asks("team-b/owed", {"cpu": 12})
    scene.ends("team-b/run")
    assert (scene.on("team-b/owed"), scene.on("team-a/borrows")) == ("default-flavor", "")


def test_a_borrowing_limit_bounds_what_is_borrowed() -> None:
    scene = teams(default(10))
    scene.asks("team-a/nine", {"cpu": 9})
    scene.asks("team-a/two", {"cpu": 2})
    scene.asks("team-a/one", {"cpu": 1})
    assert [scene.on(f"team-a/{name}") != "" for name in ("nine", "two", "one")] == [True, False, True]


def test_without_a_limit_all_of_the_cohort_may_be_borrowed() -> None:
    scene = teams(default(10))
    scene.asks("team-b/all", {"cpu": 21})
    assert scene.on("team-b/all") == "default-flavor"


def test_a_queue_borrows_only_flavors_that_it_lists() -> None:
    scene = Types()
    two = {"h100": 4, "a100": 4}
    scene.flavors(two, leaf("a", {"h100": 2}, order="h100"), leaf("b", {"h100": 2, "a100": 4}))
    scene.asks("a/one", 4)
    scene.asks("a/two", 1)
    assert [scene.on("a/one"), scene.on("a/two")] == ["h100", ""], "four A100 are free, and not of its list"


def fungible() -> Types:
    """a: 2 H100 and 4 A100; b: 2 H100; in one cohort."""
    scene = Types()
    scene.flavors({"h100": 4, "a100": 4}, leaf("a", {"h100": 2, "a100": 4}), leaf("b", {"h100": 2}, order="h100"))
    return scene


def test_when_it_can_borrow_the_default_is_to_borrow_before_the_next_flavor() -> None:
    scene = fungible()
    scene.asks("a/one", 2)
    scene.asks("a/two", 2)
    assert [scene.on("a/one"), scene.on("a/two")] == ["h100", "h100"]


def test_other_than_whencanborrow_trynextflavor_nothing_makes_a_queue_prefer_its_own_quota_of_a_later_flavor() -> None:
    scene = fungible()
    scene.asks("a/one", 3)
    assert scene.on("a/one") == "h100", "one of them is borrowed, though three A100 would be its own"


def test_when_it_can_preempt_the_default_is_the_next_flavor() -> None:
    scene = fungible()
    scene.asks("b/borrows", 4)
    scene.runs("b/borrows")
    scene.asks("a/owed", 2)
    assert scene.on("a/owed") == "a100", "two H100 are owed to it, and nobody has to leave"


def test_when_no_flavor_fits_what_is_owed_is_taken_back() -> None:
    scene = fungible()
    scene.asks("b/borrows", 4)
    scene.runs("b/borrows")
    scene.asks("a/four", 4)
    scene.runs("a/four")
    scene.asks("a/owed", 2)
    assert (scene.on("a/four"), scene.on("a/owed"), scene.victims()) == ("a100", "", ["b/borrows"])
    scene.suspended("b/borrows")
    assert scene.on("a/owed") == "h100"


def test_lower_priority_leaves_within_the_queue_where_the_queue_says_so() -> None:
    scene = Types()
    scene.flavors({"h100": 2, "a100": 2}, leaf("a", {"h100": 2, "a100": 2}), **{"preempt-lower-priority": "true"})
    scene.asks("a/low", 2)
    scene.asks("a/mid", 2, priority=5)
    scene.runs("a/low")
    scene.runs("a/mid")
    scene.asks("a/high", 2, priority=10)
    assert scene.victims() == ["a/low"], "its first flavor is held by a job of lower priority"


def test_node_selector_and_affinity_leave_out_flavors() -> None:
    scene = groups()
    scene.asks("cq/select", {"cpu": 1}, rules=PodRules(node_labels={"gpu.type": "on-demand", "zone": "z"}))
    terms = (NodeTerm((Requirement("gpu.type", "NotIn", ("spot",)),)),)
    scene.asks("cq/affine", {"cpu": 1}, rules=PodRules(nodes=terms))
    assert [scene.on("cq/select"), scene.on("cq/affine")] == ["on-demand", "on-demand"]


def tainted(**more: Any) -> Types:
    """Four spot GPUs and four others; the spot nodes are tainted. ``more``: fields of the spot flavor."""
    scene = Types()
    spot = flavor("spot", **more)
    whole = {"spot": 4, "other": 4}
    scene.flavors(whole, leaf("cq", whole), of=[spot, flavor("other")])
    return scene


def test_taints_of_a_flavor_are_for_pods_that_tolerate_them() -> None:
    scene = tainted(nodeTaints=[{"key": "spot", "value": "true", "effect": "NoSchedule"}])
    scene.asks("cq/one", 1)
    scene.asks("cq/two", 1, rules=PodRules(tolerations=(Toleration("spot", "Equal", "true", "NoSchedule"),)))
    assert [scene.on("cq/one"), scene.on("cq/two")] == ["other", "spot"]


def test_a_taint_that_only_prefers_counts_for_nothing() -> None:
    scene = tainted(nodeTaints=[{"key": "spot", "value": "true", "effect": "PreferNoSchedule"}])
    scene.asks("cq/one", 1)
    assert scene.on("cq/one") == "spot"


def test_tolerations_of_a_flavor_are_given_to_the_pods() -> None:
    taint, given = {"key": "spot-taint", "value": "true"}, {"key": "spot-taint", "operator": "Exists"}
    scene = tainted(nodeTaints=[taint | {"effect": "NoSchedule"}], tolerations=[given | {"effect": "NoSchedule"}])
    scene.asks("cq/one", 1)
    assert scene.on("cq/one") == "spot"


def test_the_quota_of_a_cohort_is_shared_by_queues_without_any() -> None:
    scene = Types()
    twelve = amounts("default-flavor", 12)
    cohort = node("cohort", twelve, children=(leaf("one", {}), leaf("two", {})))
    scene.flavors(twelve, cohort, of=ONE)
    scene.asks("one/seven", {"cpu": 7})
    scene.asks("two/six", {"cpu": 6})
    scene.asks("two/five", {"cpu": 5})
    assert [scene.on(name) != "" for name in ("one/seven", "two/six", "two/five")] == [True, False, True]


def test_a_root_without_a_limit_of_a_flavor_lends_without_an_end() -> None:
    """c is guaranteed six of any type: with no limit of H100 at the root, others need not have borrowed H100."""
    scene = Types()
    tree = node("root", {"gpu": 8}, {"gpu": 8}, children=(leaf("b", {}), leaf("c", {"gpu": 6})))
    scene.do(facts.tree(tree, rules={"flavors": json.dumps([flavor("h100"), flavor("a100")])}))
    scene.bench.synced()
    ledger = scene.bench.states["quota_accountant"].ledger
    assert ledger.lent("root/c", f"{GPU}@h100") == UNBOUNDED
    scene.asks("b/a", 8, order="a100")
    scene.runs("b/a")
    scene.asks("c/owed", 4, order="h100,a100")
    queued = [event for event in scene.bench.happened(WorkloadQueued) if event.ref.key == "c/owed"]
    assert [event.flavors["set0"] for event in queued] == [("h100",)], "the total is short, and no H100 is"
    scene.bench.sound()
