"""Whether the API server has the quota that is to be in force, and the namespaces of the quota."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import msgspec

from muster.core.objects.meta import UnreadableError
from muster.core.quota.trees.treesource import read_tree
from muster.core.reading.quotatree import NAMESPACE as TREE_NAMESPACE
from muster.core.reading.quotatree import read_quota_tree
from muster.events.facts import TreeNodeSpec
from muster.model import api
from muster.model.language import listed, say
from muster.model.text import counted
from muster.ports import ApiTransport
from muster.told.wording import problems
from muster_cli.findings import Finding
from muster_cli.policychecks import MANAGED
from muster_cli.resourceflavors import flavor_findings

SHOWN = 5


async def tree_findings(transport: ApiTransport, *, policies: bool = True) -> list[Finding]:
    """The quota tree that counts, the trees that do not count, and the namespaces of the leaves.

    ``policies``: jobs of these namespaces are to be guarded by policies.
    """
    trees = await _trees(transport)
    if trees is None:
        return []  # Missing definitions and permissions are findings of their own.
    counting = [tree for tree in trees if tree[0] == TREE_NAMESPACE]
    ignored = [f"{namespace}/{name}" for namespace, name, _ in trees if namespace != TREE_NAMESPACE]
    queues = await _kai_queues(transport)
    findings = [] if queues and not counting else [_in_force([name for _, name, _ in counting], ignored)]
    findings += [Finding("ok", say("KAI queues"), counted(queues, "queue"))] if queues else []
    if ignored:
        detail = say(
            "{ignored}: ignored, because a tree counts only in namespace {tree_namespace}",
            ignored=listed(ignored),
            tree_namespace=TREE_NAMESPACE,
        )
        namespace, _, name = ignored[0].partition("/")
        fix = say(
            "set metadata.namespace to {tree_namespace} and apply it again; then kubectl -n "
            "{namespace} delete {quota_trees} {name}",
            tree_namespace=TREE_NAMESPACE,
            namespace=namespace,
            quota_trees=api.QUOTA_TREES,
            name=name,
        )
        findings.append(Finding("bad", say("quota tree"), detail, fix))
    for _, name, body in counting[:1]:
        findings += await _judged(transport, name, body, policies=policies)
    return findings


def _in_force(names: Sequence[str], ignored: Sequence[str]) -> Finding:
    if len(names) > 1:
        fix = f"kubectl -n {TREE_NAMESPACE} delete {api.QUOTA_TREES} {' '.join(names[1:])}"
        return Finding("bad", say("quota tree"), say("only the oldest of {names} counts", names=listed(names)), fix)
    if names:
        return Finding("ok", say("quota tree"), f"{TREE_NAMESPACE}/{names[0]}")
    detail = say(
        "there is no ElasticQuotaTree in {tree_namespace}: nothing can be admitted", tree_namespace=TREE_NAMESPACE
    )
    fix = (
        say("move {tree} to {namespace}", tree=ignored[0], namespace=TREE_NAMESPACE)
        if ignored
        else say("kubectl apply -f TREE.yaml; `muster up` shows one")
    )
    return Finding("bad", say("quota tree"), detail, fix)


async def _judged(transport: ApiTransport, name: str, body: bytes, *, policies: bool) -> list[Finding]:
    """Whether a tree keeps the rules, and the problems of the tree's namespaces."""
    title, edit = (
        say("quota tree {tree_namespace}/{name}", tree_namespace=TREE_NAMESPACE, name=name),
        f"kubectl -n {TREE_NAMESPACE} edit {api.QUOTA_TREES} {name}",
    )
    fix = say("{edit}; `muster quota lint FILE` judges a tree before it is applied", edit=edit)
    try:
        observed = read_quota_tree(body)
    except UnreadableError as err:
        return [Finding("bad", title, say("it cannot be read: {problem}", problem=problems.line(err.problem)), fix)]
    tree, broken = read_tree(observed)
    if broken:
        named = say("; ").join(problems.line(problem) for problem in broken[:SHOWN])
        more = say("; and {broken} more", broken=len(broken) - SHOWN) if len(broken) > SHOWN else ""
        return [Finding("bad", title, say("it is refused as a whole: {named}{more}", named=named, more=more), fix)]
    differing = await flavor_findings(transport, tree.flavors, edit)
    return [*differing, *await _namespaces(transport, _claimed(observed.root), edit, policies=policies)]


async def foreign_leaf(transport: ApiTransport, namespace: str) -> str:
    """The name of a leaf that serves other namespaces than this one; empty when the tree has no such leaf."""
    for home, _, body in await _trees(transport) or []:
        try:
            root = read_quota_tree(body).root if home == TREE_NAMESPACE else None
        except UnreadableError:
            continue
        names = [leaf.name for leaf in (_leaves(root) if root is not None else ()) if namespace not in leaf.namespaces]
        if names:
            return names[0]
    return ""


def _leaves(node: TreeNodeSpec) -> list[TreeNodeSpec]:
    return [leaf for child in node.children for leaf in _leaves(child)] if node.children else [node]


def _claimed(node: TreeNodeSpec) -> list[str]:
    return sorted({*node.namespaces, *(name for child in node.children for name in _claimed(child))})


async def _namespaces(transport: ApiTransport, names: Collection[str], edit: str, *, policies: bool) -> list[Finding]:
    answers = await asyncio.gather(*(transport.request("GET", api.NAMESPACES.path(name=name)) for name in names))
    missing = [name for name, answer in zip(names, answers, strict=True) if answer.status == 404]
    labels = {
        name: msgspec.json.decode(answer.body)["metadata"].get("labels") or {}
        for name, answer in zip(names, answers, strict=True)
        if answer.ok
    }
    free = [name for name, values in labels.items() if values.get(MANAGED) != "true"]
    findings = []
    if missing:
        detail = say("leaves claim namespaces that do not exist: {missing}", missing=listed(missing))
        findings.append(
            Finding(
                "note",
                say("namespaces"),
                detail,
                say("kubectl create namespace {missing}, or {edit}", missing=missing[0], edit=edit),
            )
        )
    if policies and free:
        detail = say(
            "{free} without the label {managed}=true: the policies do not guard their jobs",
            free=listed(free),
            managed=MANAGED,
        )
        findings.append(
            Finding("note", say("namespaces"), detail, f"kubectl label namespace {' '.join(free)} {MANAGED}=true")
        )
    return findings


async def _kai_queues(transport: ApiTransport) -> int:
    """The number of KAI Scheduler's queues, up to one page; 0 where the queues may not be listed."""
    answer = await transport.request("GET", api.KAI_QUEUES.path(), query={"limit": "500"})
    return len(msgspec.json.decode(answer.body)["items"]) if answer.ok else 0


async def _trees(transport: ApiTransport) -> list[tuple[str, str, bytes]] | None:
    """(namespace, name, object) of the quota trees, the oldest first; None where they may not be listed."""
    answer = await transport.request("GET", api.QUOTA_TREES.path(), query={"limit": "50"})
    if not answer.ok:
        return None
    items = msgspec.json.decode(answer.body)["items"]
    items.sort(key=lambda item: (item["metadata"].get("creationTimestamp", ""), item["metadata"]["name"]))
    return [(item["metadata"]["namespace"], item["metadata"]["name"], msgspec.json.encode(item)) for item in items]
