"""deploy/rbac: everybody has the rights that their code uses, and no other."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from kit import facts
from kit.compose import services
from kit.crds import others
from kit.deployed import NAMESPACE, Right, needed, objects, of_kind, rights
from kit.nodes import ATOMIC
from kit.shell import NODES, Cell, play
from kit.story import quota_tree, rayjob
from muster.core.objects.gpushares import RESERVATIONS as GPU_RESERVATIONS
from muster.core.objects.nodepools import NAME
from muster.core.objects.nodepools import NAMESPACE as NODE_POOLS
from muster.core.reading.watched import WATCHED
from muster.core.workloads.registry import KINDS
from muster.fakecluster.world import SimCluster
from muster.model import api
from muster.model.api import ApiResource
from muster.ports import ApiResponse, ApiTransport
from muster.runtime.natsaccounts import secret_of
from muster.runtime.pairing import KNOWN_BY, cluster_uid
from muster_cli.clusterchecks import watching_rights
from muster_cli.policychecks import GLASS, OWN, STARTERS

SIGS, X_K8S = (each.group for each in api.POD_GROUPS)
READS = ("get", "list", "watch")
ACTORS = ("watcher", "actuator")


class Recording:
    """Passes requests on, and notes the right each needs."""

    def __init__(self, inner: ApiTransport, noted: set[Right]) -> None:
        self._inner = inner
        self._noted = noted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def request(self, method: str, path: str, **options: Any) -> ApiResponse:
        self._note(method, path, options.get("query") or {})
        return await self._inner.request(method, path, **options)

    async def watch(self, path: str, *, query: Mapping[str, str], **options: Any) -> AsyncIterator[bytes]:
        self._note("GET", path, {"watch": "1"})
        async for line in self._inner.watch(path, query=query, **options):
            yield line

    def _note(self, method: str, path: str, query: Mapping[str, str]) -> None:
        right = needed(method, path, query)
        if right is not None:
            self._noted.add(right)


class RecordedCell(Cell):
    """A cell whose watcher and actuator (with its presenter) are recorded apart."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = tuple(KINDS)
        # As on a real cluster: nobody has made the namespace of the Queues.
        self.cluster = SimCluster(NODES, auto_namespaces=False)
        self.request("POST", api.NAMESPACES, "", body={"metadata": {"name": "video"}})
        for definition in others():
            self.request("POST", api.CRDS, "", body=definition)
        self.used: dict[str, set[Right]] = {name: set() for name in ACTORS}
        self._who = ""

    def _runners(self, service: str, *given: Any) -> list[Any]:
        self._who = "watcher" if service == "watcher" else "actuator"
        return super()._runners(service, *given)

    def _transport(self) -> Any:
        return Recording(super()._transport(), self.used[self._who])


async def gangs_come_and_go(cell: Cell) -> None:
    """One gang by labels that is placed, and one with a PodGroup and short rounds that never is."""
    name, least = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
    asks = {"small": {name: "small", least: "2"}, "huge": {name: "huge"}}
    kind = {"apiVersion": f"{X_K8S}/v1alpha1", "kind": "PodGroup"}
    group = {**kind, "metadata": {"name": "huge"}, "spec": {"minMember": 2, "scheduleTimeoutSeconds": 2}}
    cell.request("POST", api.POD_GROUPS[1], "video", body=group)
    for gang, labels in asks.items():
        for index in range(2):
            requests = {"cpu": "1" if gang == "small" else "100"}
            container = {"name": "main", "image": "none", "resources": {"requests": requests}}
            meta = {"name": f"{gang}-{index}", "labels": labels}
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": meta,
                "spec": {"schedulerName": "muster", "containers": [container]},
            }
            cell.request("POST", api.PODS, "video", body=body)

    def group_names() -> set[str]:
        return {each["metadata"]["name"] for each in cell.request("GET", api.POD_GROUPS[1], "")["items"]}

    await cell.until(lambda: group_names() == {"small", "huge"}, what="the PodGroup that labels ask for")

    def rounds() -> list[int]:
        events = cell.request("GET", api.EVENTS, "")["items"]
        return [each["count"] for each in events if each["reason"] == "GangFailedScheduling"]

    await cell.until(lambda: max(rounds(), default=0) >= 2, what="an Event that counts rounds")
    for index in range(2):
        cell.request("DELETE", api.PODS, "video", f"small-{index}")
    await cell.until(lambda: group_names() == {"huge"}, what="the PodGroup to go with its pods")


async def nodes_are_asked_for(cell: Cell) -> None:
    """A pool is declared that could take the huge gang: nodes are asked for, until its pods are deleted."""
    cell.request("POST", api.NAMESPACES, "", body={"metadata": {"name": NODE_POOLS}})
    pool = {"maxNodes": 2, "allocatable": {"cpu": "100"}, "labels": {"pool": "large"}, "class": ATOMIC}
    config = {"metadata": {"name": NAME}, "data": {"large": json.dumps(pool)}}
    cell.request("POST", api.CONFIG_MAPS, NODE_POOLS, body=config)

    def asked(resource: ApiResource) -> int:
        return len(cell.request("GET", resource, "")["items"])

    await cell.until(lambda: asked(api.PROVISIONING_REQUESTS) == asked(api.POD_TEMPLATES) == 1, what="nodes asked for")
    for index in range(2):
        cell.request("DELETE", api.PODS, "video", f"huge-{index}")
    await cell.until(
        lambda: not asked(api.PROVISIONING_REQUESTS) and not asked(api.POD_TEMPLATES), what="asked no more"
    )


@pytest.fixture(scope="module")
def used() -> dict[str, set[Right]]:
    """The rights used in a story that makes them do everything they can."""
    cell = RecordedCell()

    async def scene(cell: Cell) -> None:
        cell.create(quota_tree())
        cell.create(rayjob("one", runtime="2s", ttl_s=1))
        cell.create(rayjob("two", runtime="2s", ttl_s=1))
        await cell.until(lambda: cell.jobs()["one"] == "Running", what="one runs")
        await cell.until(lambda: cell.jobs()["two"] in ("Running", "Complete"), what="two runs")
        whole = {"cpu": 40}
        smaller = facts.node("root", whole, whole, children=(facts.node("a", whole, whole, ("video",)),))
        spec = quota_tree(smaller)["spec"]
        cell.request(
            "PATCH",
            api.QUOTA_TREES,
            "kube-system",
            "elasticquotatree",
            body={"spec": spec},
            content_type="application/merge-patch+json",
        )
        await cell.until(lambda: len(cell.request("GET", api.QUEUES, "")["items"]) == 2, what="queues that went away")
        await gangs_come_and_go(cell)
        await nodes_are_asked_for(cell)
        await asyncio.sleep(5)

    play(cell, scene)
    return cell.used


def watcher_rights() -> set[Right]:
    return rights(of_kind("ClusterRole")["muster-watcher"])


LEASES = {Right(verb, "coordination.k8s.io", "leases") for verb in ("create", "get", "update")}


def test_the_watcher_reads_what_it_watches_and_writes_the_record_of_the_log(used: dict[str, set[Right]]) -> None:
    granted = watcher_rights()
    watched = {(row.resource.group, row.resource.plural) for row in WATCHED.values()}
    # Once, when it starts: which cluster this is.
    assert {right for right in granted if right.resource == "namespaces"} == {Right("get", "", "namespaces")}
    # And all the time: how far the log has come. Both are done by the process, and not by its runners.
    assert granted >= LEASES
    # What the API server adds to pods is followed by the process too.
    beside = {Right(verb, row.group, row.plural) for row in (api.RUNTIME_CLASSES, api.LIMIT_RANGES) for verb in READS}
    assert granted >= beside
    granted -= {Right("get", "", "namespaces"), *LEASES, *beside}
    unread = Right("list", api.CRDS.group, api.CRDS.plural)
    assert granted == {Right(verb, group, plural) for group, plural in watched for verb in READS} | {unread}
    # The simulated server is one without PodGroups of its own, as servers are unless somebody switches them on.
    absent = {Right(verb, api.NATIVE_POD_GROUPS[-1].group, "podgroups") for verb in READS}
    assert used["watcher"] == {right for right in granted - absent if right.verb != "get"}


async def test_which_cluster_it_is_takes_one_right_to_one_object() -> None:
    noted: set[Right] = set()
    assert await cluster_uid(Recording(SimCluster(NODES).transport(), noted))  # type: ignore[arg-type]
    assert noted == {Right("get", "", "namespaces")}
    rules = of_kind("ClusterRole")["muster-watcher"]["rules"]
    [rule] = [rule for rule in rules if "namespaces" in rule["resources"]]
    assert rule["resourceNames"] == [KNOWN_BY]


def test_the_actuator_has_what_it_uses(used: dict[str, set[Right]]) -> None:
    granted = rights(of_kind("ClusterRole")["muster-actuator"])
    # Where a definition has its status apart, it is written apart.
    apart = {right for right in granted if right.resource.endswith("/status")}
    assert {right.verb for right in apart} == {"patch"}
    kept = {"elasticquotatrees", "podgroups", "pods", "queues", "queueunits"}
    assert {right.resource for right in apart} == {f"{plural}/status" for plural in kept}
    # An object is looked at only after a patch of it was refused.
    kinds = {(kind.resource.group, kind.resource.plural) for kind in KINDS.values()}
    jobs = {Right(verb, *kind) for kind in kinds for verb in ("get", "patch")}
    assert Right("patch", "ray.io", "rayjobs") in used["actuator"]
    binding = {Right("create", "", "pods/binding"), Right("get", "", "pods"), Right("create", "", "pods/eviction")}
    assert {Right("create", X_K8S, "podgroups"), Right("delete", X_K8S, "podgroups")} <= used["actuator"]
    # PodGroups are made in one API group only; those of people are kept up to date in both.
    groups = {Right(verb, SIGS, "podgroups") for verb in ("create", "delete", "patch")}
    groups |= {Right(verb, "scheduling.run.ai", "podgroups") for verb in ("create", "list", "patch", "watch")}
    sharing = {Right("patch", "", "pods"), *(Right(verb, "", "configmaps") for verb in ("create", "patch"))}
    # On a server that has PodGroups of its own, where kube-scheduler is to place the gangs of jobs.
    groups |= {Right(verb, api.NATIVE_POD_GROUPS[-1].group, "podgroups") for verb in ("create", "delete", "get")}
    # Whoever is evicted is counted first.
    counting = {Right("list", "policy", "poddisruptionbudgets"), Right("list", "", "pods")}
    # What refused the pods of a job that is suspended for the lack of pods.
    counting |= {Right("list", "", "events")}
    # Workers of Ray clusters that their operator does not delete.
    late = {Right("delete", "", "pods")}
    # Which cluster this is, its lease, and the record of the log: asked and taken by the process, not by its runners.
    process = {Right("get", "", "namespaces"), *LEASES}
    assert used["actuator"] | apart | jobs | {*binding, *groups, *sharing, *counting, *late, *process} == granted


def test_no_role_gives_more_than_it_names() -> None:
    forbidden_verbs = {"*", "bind", "escalate", "impersonate"}
    for name, role in of_kind("ClusterRole").items():
        for right in rights(role):
            assert "*" not in right, name
            assert right.verb not in forbidden_verbs, name
            assert right.resource.partition("/")[0] not in ("secrets", "serviceaccounts", "clusterroles"), name
    # Whoever is given the ClusterRole of a service can do its work; pods are made in one namespace alone.
    apart = [
        found for found in objects("rbac") if found["kind"] == "Role" and found["metadata"]["name"] != "muster-reader"
    ]
    assert {found["metadata"]["namespace"] for found in apart} == {GPU_RESERVATIONS}
    assert {found["metadata"]["name"]: rights(found) for found in apart} == {
        "muster-actuator": {Right("create", "", "pods"), Right("delete", "", "pods")},
        "muster-gpu-reservation": {Right("patch", "", "pods")},
    }
    # People who sign in read one key, which reads the log.
    reader = of_kind("Role")["muster-reader"]
    assert not any(
        "*" in right or right.verb in ("list", "watch") for right in rights(reader) if right.resource != "pods"
    )
    secrets = [rule for rule in reader["rules"] if "secrets" in rule["resources"]]
    names = [secret_of("cli")]
    assert secrets == [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": ["get"]}]
    [rule] = [rule for rule in of_kind("ClusterRole")["muster-watcher"]["rules"] if "configmaps" in rule["resources"]]
    assert rule == {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [NAME], "verbs": [*READS]}


def test_every_service_has_an_account_and_three_have_rights() -> None:
    accounts = of_kind("ServiceAccount")
    assert accounts.pop("muster-gpu-reservation")["metadata"]["namespace"] == GPU_RESERVATIONS
    names = {name for name in services() if name not in ("nats", "log-init", "nats-keys")}
    lacking = set(accounts) - {f"muster-{name}" for name in names}
    assert not lacking, f"docker-compose.yml has no service for {lacking}: add it there"
    assert set(accounts) == {f"muster-{name}" for name in names}
    assert all(each["metadata"]["namespace"] == NAMESPACE for each in accounts.values())
    tokens = {name for name, each in accounts.items() if each.get("automountServiceAccountToken", True)}
    assert tokens == {f"muster-{name}" for name in (*ACTORS, "gateway")}
    bindings = of_kind("ClusterRoleBinding")
    [people] = bindings.pop("muster-break-glass")["subjects"]
    assert (people["kind"], people["name"]) == ("Group", "muster:break-glass")
    assert set(of_kind("ClusterRole")) == {*tokens, "muster-break-glass", "muster-queue-manager"}
    assert set(bindings) == tokens
    for name, binding in bindings.items():
        assert binding["roleRef"]["name"] == name
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}]


def test_what_people_are_given_are_verbs_that_only_policies_ask_for() -> None:
    assert {right.group for right in rights(of_kind("ClusterRole")["muster-queue-manager"])} == {"queues.muster.dev"}
    # Who acts as the group has no other group then: its role lets it change jobs; the policies let it start them.
    assert {right.verb for right in rights(of_kind("ClusterRole")["muster-break-glass"])} == {"get", "patch", "update"}


def test_who_may_start_jobs_is_known_by_name_and_by_no_right() -> None:
    """cluster-admin has every right, and so has what applies manifests."""
    asked, named = set(), 0
    for each in objects("policies"):
        text = json.dumps(each)
        asked |= set(re.findall(r"check\('([\w-]+)'\)", text))
        for variable in each["spec"].get("variables", ()):
            if variable["name"] != "mayAdmit":
                continue
            named += 1
            accounts = set(re.findall(r"'([\w:-]+)'", variable["expression"])) - {" ", "starters"}
            assert accounts == {GLASS, *OWN}, each["metadata"]["name"]
            chosen = each["spec"].get("paramKind", {}).get("kind")
            assert (f"params.data[?'{STARTERS}']" in variable["expression"]) == (chosen == "ConfigMap")
    assert "admit" not in asked and named >= 10, asked


def test_the_doctor_asks_for_no_more() -> None:
    granted = watcher_rights()
    for resource, part, _, verbs in watching_rights():
        name = f"{resource.plural}/{part}" if part else resource.plural
        assert {Right(verb, resource.group, name) for verb in verbs} <= granted


def test_everything_of_ours_says_so() -> None:
    for found in [*objects("rbac"), *objects("policies")]:
        assert found["metadata"]["labels"]["app.kubernetes.io/part-of"] == "muster", found["metadata"]["name"]
