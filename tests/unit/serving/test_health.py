"""What the gateway says of the health of a cell."""

from __future__ import annotations

from kit import facts, nodes
from kit.bench import Bench
from kit.recorded import ADMIN, tenant
from muster.core.stage import Folder
from muster.events.facts import NodeGone
from muster.model.keys import Ref
from muster.serving.health import health
from muster.serving.scope import Lens
from muster.serving.shapes import HealthView
from muster.serving.views import moment_of
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState


def found(bench: Bench, *namespaces: str) -> HealthView:
    folder, state = Folder(ReadModel()), ReadState()
    for stored in bench.log:
        folder.fold(state, stored)
    scope = tenant(*namespaces).scope if namespaces else ADMIN.scope
    return health(state, Lens(scope, state), moment_of(state, state.now, live=True))


def test_what_stops_everything_comes_first_and_what_can_never_start_is_named_once_for_all_alike() -> None:
    bench = Bench()
    leaves = (
        facts.node("a", {"cpu": 2}, {"cpu": 4}, ("a",)),
        facts.node("b", {"cpu": 2}, {"cpu": 4}, ("b",)),
    )
    bench.facts(facts.tree(facts.node("root", {"cpu": 4}, {"cpu": 4}, children=leaves)))
    bench.settle()
    assert {each.level for each in found(bench).findings} == {"stopped"}
    assert not found(bench).admits
    bench.synced()
    bench.settle()
    assert (found(bench).summary, found(bench).findings) == ("Works", [])
    bench.facts(*(facts.seen(facts.job(name, "a", cpu=9)) for name in ("large-1", "large-2")))
    bench.facts(facts.seen(facts.job("small", "b", cpu=1)))
    bench.settle()
    [finding] = found(bench).findings
    assert finding.subject == "a/large-1"
    assert finding.text.endswith("(1 more job alike)")
    assert found(bench, "b").findings == []


def test_quotas_beyond_the_nodes_are_named_after_the_loss_of_a_node() -> None:
    bench, half = Bench(), {"cpu": 4, "gpu": 8}
    leaves = tuple(facts.node(name, half, {"cpu": 8, "gpu": 16}, (name,)) for name in ("a", "b"))
    bench.facts(facts.tree(facts.node("root", {"cpu": 8, "gpu": 16}, {"cpu": 8, "gpu": 16}, children=leaves)))
    bench.synced()
    bench.settle()
    assert found(bench).findings == [], "no node is known, so nothing is said of them"
    bench.facts(*(nodes.node(name, cpu=8, gpu=8) for name in ("n1", "n2")))
    bench.settle()
    assert found(bench).findings == []
    bench.facts(NodeGone(ref=Ref("Node", "", "n2", "uid-n2"), rv=facts.next_rv()))
    bench.settle()
    [finding] = found(bench).findings
    assert finding.level == "attention"
    assert finding.text.startswith("1 node of the cluster has 8 nvidia.com/gpu, and the quotas divide 16: ")
