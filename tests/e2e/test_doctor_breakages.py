"""The doctor is never green when red: each breakage of a cluster is named, with a command that repairs it.

One real API server with everything of deploy/. Every breakage is made, named, and undone; before and after all of
them a healthy install needs nothing.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kit.breaking import Break, bad, changed, deployment, lease, named, relabelled, with_, without
from kit.controlplane import ControlPlane
from kit.guarded import client
from kit.kubeclient import KubeClient, Object
from kit.story import quota_tree
from kit.waiting import until
from muster.kube.config import connect as connect_api
from muster.kube.sources import Explicit, FromKubeconfig
from muster.ports import ApiTransport
from muster_cli.clusterchecks import cluster_findings
from muster_cli.findings import Finding
from muster_cli.rolechecks import role_findings
from muster_cli.treechecks import tree_findings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

ADMISSION, RBAC = "admissionregistration.k8s.io/v1", "rbac.authorization.k8s.io/v1"
TREES, CRDS = "scheduling.sigs.k8s.io/v1beta1", "apiextensions.k8s.io/v1"
POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
SYSTEM, TREE_AT = "muster-system", "kube-system"


def policy(name: str) -> tuple[str, str, str]:
    return ADMISSION, POLICY, name


def binding(name: str) -> tuple[str, str, str]:
    return ADMISSION, BINDING, name


TREE = (TREES, "ElasticQuotaTree", "elasticquotatree", TREE_AT)
LIMITLESS = {"root": {"name": "root", "min": {"cpu": "9"}, "max": {"cpu": "1"}, "children": []}}
UNREADABLE = {"root": {"name": "root", "min": {"cpu": "much"}, "max": {"cpu": "1"}, "children": []}}
LEAF = {"name": "x", "min": {"cpu": "1"}, "max": {"cpu": "1"}, "namespaces": ["nowhere"]}
LOST = {"root": {"name": "root", "children": [LEAF]}}


def second_tree(namespace: str) -> Object:
    return quota_tree(None, namespace=namespace) | {"metadata": {"name": "second", "namespace": namespace}}


ELSEWHERE = {"namespaceSelector": {"matchLabels": {"a": "b"}}}
ROLES_FIX = "kubectl apply -k deploy/rbac"
APPLY, EDIT = "kubectl apply -f deploy/policies", "edit configmap muster-controllers"
POLICIES: dict[str, tuple[Break, str, str]] = {
    "a policy is missing": (without(*policy("muster-jobs")), "muster-jobs missing: any user may start", APPLY),
    "another policy is missing": (without(*policy("muster-claims")), "muster-claims missing", APPLY),
    "a policy is not bound": (without(*binding("muster-pods")), f"{BINDING} muster-pods missing", APPLY),
    "what limits us is missing": (without(*policy("muster-own-jobs")), "actuator change anything", APPLY),
    "what limits us is not bound": (without(*binding("muster-own-pods")), "actuator change anything", APPLY),
    "a binding only warns": (
        changed(*binding("muster-jobs"), spec={"validationActions": ["Warn"]}), "refuses nothing: validation", APPLY
    ),
    "a binding holds elsewhere": (
        changed(*binding("muster-jobs"), spec={"matchResources": ELSEWHERE}),
        "holds only in namespaces with a=b", APPLY,
    ),
    "a binding trusts others": (
        changed(*binding("muster-jobs"), spec={"paramRef": {"name": "mine", "namespace": "default"}}),
        "takes its accounts from ConfigMap default/mine", APPLY,
    ),
    "a policy lets through what fails": (
        changed(*policy("muster-jobs"), spec={"failurePolicy": "Ignore"}), "has failurePolicy Ignore", APPLY
    ),
    "a policy has no rule": (
        changed(*policy("muster-tokens"), spec={"validations": None, "auditAnnotations": [
            {"key": "x", "valueExpression": "'y'"}]}),
        "muster-tokens has no rule", APPLY,
    ),
    "a policy is for some namespaces": (
        changed(*policy("muster-status"), spec={"matchConstraints": ELSEWHERE}),
        "holds in some namespaces only", APPLY,
    ),
    "nobody is trusted": (
        without("v1", "ConfigMap", "muster-controllers", SYSTEM), "muster-controllers missing", "controllers.yaml"
    ),
    "no operator is named": (
        changed("v1", "ConfigMap", "muster-controllers", SYSTEM, data={"rayjobs.ray.io": ""}), "names no account", EDIT
    ),
}  # fmt: skip
QUOTA: dict[str, tuple[Break, str, str]] = {
    "no tree": (without(*TREE), "there is no ElasticQuotaTree", "kubectl apply -f TREE.yaml"),
    "two trees": (with_(second_tree(TREE_AT)), "only the oldest of", "delete elasticquotatrees"),
    "a tree elsewhere": (
        with_(second_tree("default")),
        "ignored, because a tree counts only",
        "kubectl -n default delete",
    ),
    "a refused tree": (changed(*TREE, spec=LIMITLESS), "it is refused as a whole", "kubectl -n kube-system edit"),
    "an unreadable tree": (changed(*TREE, spec=UNREADABLE), "quota tree kube-system/", "kubectl -n kube-system edit"),
    "a namespace that is not": (changed(*TREE, spec=LOST), "do not exist: nowhere", "kubectl create namespace nowhere"),
    "an unguarded namespace": (relabelled("video", None), "video without the label", "kubectl label namespace video"),
    "a namespace let go": (relabelled("text", "no"), "text without the label", "kubectl label namespace text"),
}
ROLES: dict[str, tuple[Break, str, str]] = {
    "the watcher may nothing": (
        changed(RBAC, "ClusterRole", "muster-watcher", rules=[]), "muster-watcher may not", ROLES_FIX
    ),
    "the actuator may nothing": (
        changed(RBAC, "ClusterRole", "muster-actuator", rules=[]), "muster-actuator may not", ROLES_FIX
    ),
    "the watcher is not bound": (
        without(RBAC, "ClusterRoleBinding", "muster-watcher"), "muster-watcher may not", ROLES_FIX
    ),
    "the actuator is not bound": (
        without(RBAC, "ClusterRoleBinding", "muster-actuator"), "muster-actuator may not", ROLES_FIX
    ),
    "the gateway may not ask": (
        without(RBAC, "ClusterRoleBinding", "muster-gateway"), "muster-gateway may not", ROLES_FIX
    ),
}  # fmt: skip
CLUSTER: dict[str, tuple[Break, str, str]] = {
    "kube-queue holds a lease": (lease("kube-queue-x", "kube-queue", "q-0"), "other owner kube-queue", "stop it"),
    "Kueue runs": (deployment("kueue-controller-manager", "kueue-system"), "other owner Kueue", "stop it"),
    "koord-queue runs": (deployment("koord-queue", "koord-queue"), "other owner koord-queue", "stop it"),
    "KAI binds pods": (deployment("kai-scheduler-default", "kai-scheduler"), "other owner KAI", "scale the"),
    "another Muster runs": (
        deployment("muster-x", "default", **{"app.kubernetes.io/part-of": "muster"}), "other owner Muster", "scale it"
    ),
    "another Muster acts": (lease("muster", SYSTEM, "main/else"), "cell/log main/else acts here", "scale its actuator"),
    "no QueueUnits": (
        without(CRDS, "CustomResourceDefinition", "queueunits.scheduling.x-k8s.io"),
        "definition QueueUnit", "from deploy/crds",
    ),
    "no Queues": (
        without(CRDS, "CustomResourceDefinition", "queues.scheduling.x-k8s.io"), "definition Queue", "from deploy/crds"
    ),
    "no operator": (
        without(CRDS, "CustomResourceDefinition", "tfjobs.kubeflow.org"), "kinds TFJob", "training operator"
    ),
}  # fmt: skip
FOR_CLUSTER: tuple[tuple[dict[str, tuple[Break, str, str]], str], ...] = (
    (POLICIES, "cluster"), (QUOTA, "trees"), (ROLES, "roles"), (CLUSTER, "cluster"),
)  # fmt: skip


async def asked(transport: ApiTransport, part: str = "") -> list[Finding]:
    """What the doctor says of a cluster; ``part``: of this alone."""
    found: list[Finding] = []
    if part in ("", "cluster"):
        found += await cluster_findings(transport, acting=True)
    if part in ("", "roles"):
        found += await role_findings(transport)
    if part in ("", "trees"):
        found += await tree_findings(transport)
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kube(plane: ControlPlane) -> AsyncIterator[KubeClient]:
    """Everything of deploy/ is installed, and a tree whose namespaces are managed."""
    as_group = (plane.admin.name, *plane.admin.groups, "muster:break-glass")
    async with client(plane, plane.admin, acts_as=as_group) as kube:
        tree = quota_tree()
        await kube.create(tree)
        for name in sorted(claimed(tree["spec"]["root"])):
            if await kube.find("v1", "Namespace", name) is None:
                await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            await kube.patch("v1", "Namespace", name, patch={"metadata": {"labels": {"muster.dev/managed": "true"}}})
        yield kube


def claimed(node: Object) -> set[str]:
    return {*node.get("namespaces", ()), *(name for each in node.get("children", ()) for name in claimed(each))}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def transport(plane: ControlPlane) -> AsyncIterator[ApiTransport]:
    found = await connect_api(FromKubeconfig(str(plane.kubeconfig)))
    yield found
    await found.close()


async def test_each_breakage_of_a_cluster_is_named_with_what_mends_it(
    kube: KubeClient, transport: ApiTransport
) -> None:
    assert bad(await asked(transport)) == []
    missed: dict[str, list[Finding]] = {}
    for table, part in FOR_CLUSTER:
        for name, (breaks, words, fix) in table.items():
            async with breaks(kube):
                found: list[Finding] = []

                async def sees(
                    part: str = part, words: str = words, fix: str = fix, found: list[Finding] = found
                ) -> bool:
                    found[:] = await asked(transport, part)
                    return named(found, words, fix)

                try:  # An authorizer and discovery hear of a change a moment later.
                    await until(sees, 10.0, 0.2)
                except AssertionError:
                    missed[name] = [each for each in found if each.grade != "ok"]
    assert not missed, "\n".join(f"{name}: {each.title}: {each.detail}" for name in missed for each in missed[name])
    await until(lambda: healthy(transport), 30.0, what="a healthy cluster again")


async def healthy(transport: ApiTransport) -> bool:
    return bad(await asked(transport)) == []


async def test_an_api_server_that_cannot_be_asked_is_named(plane: ControlPlane) -> None:
    for source in (
        Explicit("https://127.0.0.1:1", token="x"),
        Explicit(plane.url, token="nobody", ca_file=str(plane.ca_file)),
        FromKubeconfig(str(plane.kubeconfig), "other"),
    ):
        with pytest.raises(Exception, match=r"127\.0\.0\.1|other"):
            await connect_api(source, check=True)


async def test_there_are_many() -> None:
    assert sum(len(table) for table, _ in FOR_CLUSTER) >= 35
