"""What ``muster doctor`` judges: clocks, room, leaders, rights and policies."""

from pathlib import Path

import pytest
import yaml

from kit.story import quota_tree
from muster.bus.shares import LogUsage
from muster.core.reading.watched import WATCHED
from muster.fakecluster.apiserver import SimApiServer, SimTransport
from muster.model import api
from muster.runtime.config import Config
from muster.runtime.runners.leader import MAX_SKEW_MS
from muster_cli.buschecks import judged
from muster_cli.clusterchecks import acting_rights, watching_rights
from muster_cli.findings import Finding
from muster_cli.instances import Instance
from muster_cli.owners import OWNERS, owner_findings
from muster_cli.policychecks import POLICIES, weakened
from muster_cli.reading import LogPlace
from muster_cli.state import SEATS, CellState, Lead
from muster_cli.treechecks import tree_findings

DEPLOY = Path(__file__).parents[3] / "deploy"
NOW = 1_000_000


def state(*, used: int = 0, limit: int = 100, broker: int = NOW, led: bool = True) -> CellState:
    usage = LogUsage(last_seq=7, messages=7, bytes=used, max_bytes=limit, broker_ms=broker)
    leads = [Lead(stage, shard, "p" if led or stage != "actuator" else "") for stage, shard in SEATS]
    return CellState("main", "nats://x", "S", "id", 1, usage, leads)


def grades(cell: CellState, place: LogPlace | None = None, before: int = NOW, after: int = NOW) -> dict[str, str]:
    return {found.title: found.grade for found in judged(cell, place or LogPlace(Config()), before, after)}


def test_a_healthy_cell() -> None:
    assert grades(state()) == {"clocks": "ok", "log": "ok", "leaders": "ok"}


@pytest.mark.parametrize(
    ("broker", "before", "after", "grade", "words"),
    [
        (NOW, NOW - MAX_SKEW_MS - 900, NOW + 10, "ok", "less than"),
        (NOW, NOW + MAX_SKEW_MS + 1, NOW + MAX_SKEW_MS + 50, "bad", "ahead of the broker's"),
        (NOW, NOW - 9_000, NOW - 5_000, "bad", "5 s behind the broker's"),
        (NOW, NOW - 5_000, NOW + 5_000, "ok", "less than"),
    ],
)
def test_clocks_are_judged_by_what_is_certain(broker: int, before: int, after: int, grade: str, words: str) -> None:
    found = judged(state(broker=broker), LogPlace(Config()), before, after)[0]
    assert found.grade == grade
    assert words in found.detail


def test_a_full_log_is_told_before_it_is_too_late() -> None:
    assert grades(state(used=79))["log"] == "ok"
    assert grades(state(used=80))["log"] == "note"
    assert grades(state(used=95))["log"] == "bad"
    assert grades(state(used=95, limit=-1))["log"] == "ok"


def test_nobody_needs_to_act_where_only_is_observed() -> None:
    assert grades(state(led=False))["leaders"] == "bad"
    observing = Instance(1, 1, "u", "main", "/h", temporary=True, acting=False, simulated=False)
    place = LogPlace(Config(), observing)
    assert grades(state(led=True), place)["leaders"] == "ok"


def test_the_policies_are_those_we_ship() -> None:
    shipped = [
        (document["kind"], document["metadata"]["name"])
        for path in (DEPLOY / "policies").glob("*.yaml")
        for document in yaml.safe_load_all(path.read_text())
    ]
    wanted = [(resource.kind, policy.name) for policy in POLICIES for resource in (policy.resource, policy.binding)]
    assert sorted(wanted) == sorted(shipped)


async def test_the_rights_are_those_we_grant() -> None:
    """Everything the doctor asks for is in the roles we ship, so that who applies them is told to be fine."""
    granted: dict[str, set[str]] = {}
    for path in (DEPLOY / "rbac").glob("*.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            for rule in document.get("rules") or ():
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        granted.setdefault(f"{group}/{resource}", set()).update(rule["verbs"])
    rights = [*watching_rights(), *await acting_rights(SimTransport(SimApiServer(lambda: 0)))]
    assert {resource for resource, *_ in rights} >= {row.resource for row in WATCHED.values()} | {api.EVENTS}
    for resource, subresource, _, verbs in rights:
        name = f"{resource.group}/{resource.plural}" + (f"/{subresource}" if subresource else "")
        assert set(verbs) <= granted.get(name, set()), name


class Frozen:
    def now(self) -> int:
        return NOW


def owners_of(**objects: object) -> SimTransport:
    from muster.fakecluster.apiserver.kinds import ResourceRules
    from muster_cli.owners import DEPLOYMENTS

    server = SimApiServer(lambda: NOW, auto_namespaces=True)
    server.serve(ResourceRules(resource=DEPLOYMENTS, fields=frozenset(["metadata.name"])))
    for key, body in objects.items():
        namespace, _, name = key.partition("__")
        meta = {"name": name.replace("_", "-"), "namespace": namespace.replace("_", "-")}
        assert isinstance(body, dict)
        meta |= body.pop("metadata", {})
        server.objects.create(DEPLOYMENTS, meta["namespace"], {**body, "metadata": meta})
    return SimTransport(server)


async def found_in(transport: SimTransport, *, acting: bool = True) -> list[Finding]:
    return await owner_findings(transport, acting=acting, clock=Frozen())


async def test_other_owners_are_found_by_their_deployments() -> None:
    runs = {"status": {"availableReplicas": 1}}
    assert [found.grade for found in await found_in(owners_of())] == ["ok"]
    for owner in OWNERS:
        name = owner.deployments[0].replace("-", "_")
        transport = owners_of(**{f"somewhere__{name}": dict(runs)})
        [found] = await found_in(transport)
        assert (found.grade, found.title) == ("bad", f"other owner {owner.name}")
        assert owner.deployments[0] in found.fix
        assert [each.grade for each in await found_in(transport, acting=False)] == ["note"]
    scaled_down = owners_of(kube_queue__kube_queue_controller={"status": {}})
    assert [found.grade for found in await found_in(scaled_down)] == ["ok"]


async def test_another_muster_is_an_owner_too() -> None:
    ours = {"metadata": {"labels": {"app.kubernetes.io/part-of": "muster"}}, "status": {"availableReplicas": 2}}
    [found] = await found_in(owners_of(muster_system__muster_actuator=ours))
    assert found.title == "other owner Muster"
    assert "muster-system/muster-actuator" in found.detail


async def test_kueue_is_one_only_when_it_takes_rayjobs() -> None:
    from muster.model.api import CONFIG_MAPS

    transport = owners_of(kueue_system__kueue_controller_manager={"status": {"availableReplicas": 1}})
    assert [found.grade for found in await found_in(transport)] == ["bad"]
    server = transport._server
    config = {"metadata": {"name": "kueue-manager-config"}, "data": {"controller_manager_config.yaml": "- batch/job"}}
    server.objects.create(CONFIG_MAPS, "kueue-system", config)
    assert [found.grade for found in await found_in(transport)] == ["ok"]
    more = {"data": {"controller_manager_config.yaml": "- batch/job\n- ray.io/rayjob"}}
    server.objects.patch(CONFIG_MAPS, "kueue-system", "kueue-manager-config", more)
    assert [found.grade for found in await found_in(transport)] == ["bad"]


def cluster_with_trees(*namespaces: str) -> SimTransport:
    server = SimApiServer(lambda: NOW, auto_namespaces=True)
    for namespace in namespaces:
        server.objects.create(api.QUOTA_TREES, namespace, quota_tree(namespace=namespace))
    return SimTransport(server)


async def test_a_tree_where_none_counts_is_not_ignored_in_silence() -> None:
    found = await tree_findings(cluster_with_trees("default"))
    assert [each.grade for each in found] == ["bad", "bad"]
    assert "there is no ElasticQuotaTree in kube-system" in found[0].detail
    assert found[0].fix == "move default/elasticquotatree to kube-system"
    assert found[1].detail.startswith("default/elasticquotatree: ignored, because a tree counts only in namespace ")
    both = await tree_findings(cluster_with_trees("default", "kube-system"), policies=False)
    assert [each.grade for each in both] == ["ok", "bad", "note"], "the namespaces of its leaves do not exist"
    alone = await tree_findings(cluster_with_trees("kube-system"), policies=False)
    assert [each.grade for each in alone] == ["ok", "note"]


def test_what_we_ship_is_not_weak() -> None:
    shipped = {
        (document["kind"], document["metadata"]["name"]): document
        for path in (DEPLOY / "policies").glob("*.yaml")
        for document in yaml.safe_load_all(path.read_text())
    }
    for policy in POLICIES:
        for resource in (policy.resource, policy.binding):
            assert list(weakened(policy, resource, shipped[resource.kind, policy.name])) == []


async def test_kai_queues_are_enough_without_a_tree() -> None:
    kai = api.KAI_QUEUES
    team = {"apiVersion": kai.api_version, "kind": kai.kind, "metadata": {"name": "team-a"}, "spec": {}}
    transport = cluster_with_trees()
    transport._server.objects.create(kai, "", dict(team))
    assert [(each.grade, each.title, each.detail) for each in await tree_findings(transport)] == [
        ("ok", "KAI queues", "1 queue")
    ]
    both = cluster_with_trees("kube-system")
    both._server.objects.create(kai, "", dict(team))
    assert [each.title for each in await tree_findings(both, policies=False)] == [
        "quota tree",
        "KAI queues",
        "namespaces",
    ]
