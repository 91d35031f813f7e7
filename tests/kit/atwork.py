"""A generated tenant at work: it makes, edits, scales, resizes and deletes at random whatever the server lets it, where
Muster, the real controllers and the real scheduler run. And a judge that counts what its pods ask for on their nodes.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from kit import jobs
from kit.cluster import document_job
from kit.guarded import gang_pod
from kit.kubeclient import ApiError, KubeClient, Object
from kit.tenant import Amounts, Edit, Schemas, all_edits, edited, of_pod, plus
from muster.core.workloads.registry import KINDS

TEMPLATE = "PodTemplateSpec"
MOST = 6
"""Objects of a kind that there are at a time: for more of them one is deleted first."""
MARKS = (
    "quota.scheduling.alibabacloud.com/name",
    "kai.scheduler/queue",
    "muster.dev/granted",
    "muster.dev/intent",
    "batch.kubernetes.io/controller-uid",
    "ray.io/is-ray-node",
    "app",
)
"""Labels and annotations that decide how a pod or a job is counted, and one that does not."""
SIZES = ("parallelism", "completions", "replicas", "minReplicas", "maxReplicas", "numNodes", "size", "instances")
PROPAGATION = ("Background", "Foreground", "Orphan")
STATUSES = (400, 403, 404, 405, 409, 410, 413, 415, 422)
"""Answers of a server that works."""


def with_templates(schemas: Schemas) -> list[tuple[str, str]]:
    """(apiVersion, kind) of what has a pod template of its own in its spec, by the server's own OpenAPI."""
    found = []
    for schema in schemas.known.values():
        for mark in schema.get("x-kubernetes-group-version-kind", ())[:1]:
            spec = schemas.whole(schema.get("properties", {}).get("spec", {}))
            inner = schemas.whole(spec.get("properties", {}).get("template", {}))
            if inner is schemas.named(f"io.k8s.api.core.v1.{TEMPLATE}"):
                group, version = mark["group"], mark["version"]
                found.append((f"{group}/{version}" if group else version, str(mark["kind"])))
    return sorted(found)


def controller_of_pods(api_version: str, kind: str, namespace: str) -> Object:
    """An object of a kind that makes pods of a template, and is no queued job."""
    marks = {"app": "tried"}
    pod = gang_pod(namespace)["spec"] | {"schedulerName": "muster"}
    pod["containers"][0]["resources"] = {"requests": {"cpu": "3", "memory": "1Gi"}}
    selector: Object = marks if kind == "ReplicationController" else {"matchLabels": marks}
    spec: Object = {"selector": selector, "template": {"metadata": {"labels": marks}, "spec": pod}}
    if kind != "DaemonSet":
        spec["replicas"] = 3
    if kind == "StatefulSet":
        spec["serviceName"] = "none"
    meta = {"generateName": "tried-", "namespace": namespace}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}


class Tenant:
    """Acts as one user in one namespace. ``done``: {what was tried: how often it passed}."""

    def __init__(
        self, kube: KubeClient, schemas: Schemas, namespace: str, seed: int, more: Sequence[Callable[[], Object]] = ()
    ) -> None:
        """``more``: what else the tenant makes."""
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.last: list[str] = []
        """What passed last, to tell what led to a complaint."""
        self._kube, self._schemas, self._namespace = kube, schemas, namespace
        self._chance = random.Random(seed)
        others = [each for each in with_templates(schemas) if each[1] not in KINDS]
        self._makers: list[Callable[[], Object]] = [
            *(lambda kind=kind: self._job(kind) for kind in KINDS),
            *(lambda each=each: controller_of_pods(*each, namespace) for each in others),
            self._pod,
        ]
        self._makers += [self._submitter, *more]
        pairs = {(row.resource.api_version, kind) for kind, row in KINDS.items()} | {*others, ("v1", "Pod")}
        self._kinds = sorted(pairs)

    async def step(self) -> None:
        """One act."""
        acts = (self._make, self._make, self._plain, self._edit, self._edit, self._edit, self._part, self._delete)
        acts += (self._relabel, self._grow)
        await self._chance.choice(acts)()

    def _job(self, kind: str) -> Object:
        made = document_job(self._namespace) if kind == "RayJob" else jobs.KINDS[kind].make("tried", self._namespace)
        made["metadata"].pop("name", None)
        made["metadata"]["generateName"] = "tried-"
        return made

    def _pod(self) -> Object:
        made = gang_pod(self._namespace)
        made["spec"] |= {"schedulerName": "muster", "terminationGracePeriodSeconds": 0}
        made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "5", "memory": "1Gi"}}
        return made

    def _submitter(self) -> Object:
        """A RayJob that runs on a cluster of the namespace: only its submitter is its own."""
        made = self._job("RayJob")
        made["metadata"]["annotations"] = {"sim.muster.dev/runtime": "9h"}
        for field in ("rayClusterSpec", "shutdownAfterJobFinishes"):
            made["spec"].pop(field, None)
        return {**made, "spec": {**made["spec"], "clusterSelector": {"ray.io/cluster": "mine"}, "suspend": False}}

    def _some(self, found: Object) -> list[Edit]:
        """One edit, or two."""
        return self._chance.sample(all_edits(self._schemas, found), self._chance.choice((1, 1, 2)))

    async def _try(self, what: str, attempt: Any, told: object = "") -> Object | None:
        try:
            found: Object = await attempt
        except ApiError as err:
            assert err.status in STATUSES, (what, err)
            self.refused[what] += 1
            return None
        self.done[what] += 1
        self.last = [*self.last[-30:], f"{what} {told}"]
        return found

    async def _plain(self) -> None:
        """What every user does: a job, as it is meant."""
        made = self._job(self._chance.choice([*KINDS]))
        await self._make_room(made)
        await self._try(f"make {made['kind']}", self._kube.create(made))

    async def _make(self) -> None:
        made = self._chance.choice(self._makers)()
        edits = self._some(made)
        await self._make_room(made)
        await self._try(f"make {made['kind']} otherwise", self._kube.create(edited(made, edits)), edits)

    async def _make_room(self, made: Object) -> None:
        found = await self._kube.list_objects(made["apiVersion"], made["kind"], self._namespace)
        if len(found) >= MOST:
            name = self._chance.choice(found)["metadata"]["name"]
            attempt = self._kube.delete(made["apiVersion"], made["kind"], name, self._namespace)
            await self._try(f"delete {made['kind']}", attempt, name)

    async def _any(self) -> Object | None:
        """Some object of the namespace: its own, and what controllers made."""
        api_version, kind = self._chance.choice(self._kinds)
        found = await self._kube.list_objects(api_version, kind, self._namespace)
        if not found:
            return None
        one = copy.deepcopy(self._chance.choice(found))
        return {**one, "apiVersion": api_version, "kind": kind}

    async def _edit(self) -> None:
        found = await self._any()
        if found is not None:
            name, edits = found["metadata"]["name"], self._some(found)
            attempt = self._kube.patch(found["apiVersion"], found["kind"], name, self._namespace, patch=edits)
            await self._try(f"edit {found['kind']}", attempt, (name, edits))

    async def _part(self) -> None:
        """A part of an object that is written by itself."""
        found = await self._any()
        if found is None:
            return
        kind, name = found["kind"], found["metadata"]["name"]
        big = {"requests": {"cpu": "64"}, "limits": {"cpu": "64"}}
        parts: list[tuple[str, Object]] = [("scale", {"spec": {"replicas": 40}})]
        if kind == "Pod":
            containers = [{"name": each["name"], "resources": big} for each in found["spec"]["containers"]]
            parts = [("resize", {"spec": {"containers": containers}}), ("status", {"status": {"phase": "Succeeded"}})]
        part, patch = self._chance.choice(parts)
        attempt = self._kube.patch(found["apiVersion"], kind, name, self._namespace, patch=patch, subresource=part)
        await self._try(f"{part} of {kind}", attempt, name)

    async def _relabel(self) -> None:
        """Other labels, annotations or owners: of another queue, of nobody, of a job that counts already."""
        found = await self._any()
        if found is None:
            return
        key = self._chance.choice(MARKS)
        value = self._chance.choice((None, "root/algorithm/text", "false", "x"))
        changes: list[Object] = [{"labels": {key: value}}, {"annotations": {key: value}}]
        changes += [{"ownerReferences": None}, {"labels": None}]
        patch = {"metadata": self._chance.choice(changes)}
        kind, name = found["kind"], found["metadata"]["name"]
        await self._try(
            f"relabel {kind}", self._kube.patch(found["apiVersion"], kind, name, self._namespace, patch=patch), patch
        )

    async def _grow(self) -> None:
        """A number of pods of some object, up or down."""
        found = await self._any()
        numbers = [] if found is None else [*_numbers(found.get("spec") or {}, "/spec")]
        if found is None or not numbers:
            return
        kind, name, path = found["kind"], found["metadata"]["name"], self._chance.choice(numbers)
        edits = [{"op": "replace", "path": path, "value": self._chance.choice((0, 1, 2, 4, 30))}]
        attempt = self._kube.patch(found["apiVersion"], kind, name, self._namespace, patch=edits)
        await self._try(f"scale {kind}", attempt, (name, edits))

    async def _delete(self) -> None:
        found = await self._any()
        if found is not None:
            how = self._chance.choice(PROPAGATION)
            name, kind = found["metadata"]["name"], found["kind"]
            attempt = self._kube.delete(found["apiVersion"], kind, name, self._namespace, propagation=how)
            await self._try(f"delete {kind}, {how}", attempt, name)


def _numbers(value: Any, path: str) -> Iterator[str]:
    """The JSON pointers of the numbers by which an object says how many pods it wants."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in SIZES and isinstance(inner, int):
                yield f"{path}/{key}"
            yield from _numbers(inner, f"{path}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _numbers(inner, f"{path}/{index}")


# --- the judge --------------------------------------------------------------------------------------------------------


def on_nodes(pods: Sequence[Object]) -> tuple[Amounts, list[str]]:
    """What pods that hold room on a node ask for in all, whatever made them, and each of them in words."""
    held: list[Amounts] = [{}]
    named = []
    for pod in pods:
        spec, meta = pod["spec"], pod["metadata"]
        if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        asks, owners = of_pod(spec), [f"{each['kind']}/{each['name']}" for each in meta.get("ownerReferences") or []]
        held.append(asks)
        told = {key: str(amount) for key, amount in asks.items() if amount}
        named.append(f"{meta['name']} of {owners} on {spec['nodeName']}: {told}")
    return plus(*held), named


def over(used: Amounts, most: dict[str, Decimal]) -> dict[str, str]:
    return {key: f"{used[key]} of {most[key]}" for key in most if used.get(key, Decimal(0)) > most[key]}
