"""Muster's objects on a cluster, and their removal: Muster's objects alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from msgspec import Struct, field

from muster.core.objects.meta import MADE_FOR, SHOWN, UnreadableError
from muster.core.objects.nodepools import REQUESTED
from muster.core.reading.kubequeue import MADE, QUEUE_NAMESPACE
from muster.core.workloads.registry import KINDS
from muster.model.api import POD_GROUPS, POD_TEMPLATES, PROVISIONING_REQUESTS, QUEUE_UNITS, QUEUES, ApiResource
from muster.model.keys import Ref
from muster.model.language import say
from muster.model.workload import Workload
from muster.ports import ApiTransport
from muster_cli.marking import refusal

PAGE = 500
GONE = 404


class Leftovers(Struct, frozen=True):
    """What is there: objects of ours, and jobs we have had to do with."""

    ours: list[tuple[ApiResource, Ref]] = field(default_factory=list)
    waiting: list[Ref] = field(default_factory=list)
    running: list[Ref] = field(default_factory=list)


async def leftovers(transport: ApiTransport) -> Leftovers:
    """Look at the cluster. Raises CliError when the server does not let us."""
    result = Leftovers()
    for resource, is_ours in OURS.items():
        async for item in items(transport, resource):
            if is_ours(item["metadata"]):
                result.ours.append((resource, _ref(item, resource.kind)))
    for kind, row in KINDS.items():
        async for item in items(transport, row.resource):
            try:
                workload = row.read(msgspec.json.encode({"kind": kind, **item}))
            except UnreadableError:
                continue
            if isinstance(workload, Workload) and workload.phase != "finished":
                _sort(workload, result)
    return result


def _sort(workload: Workload, leftovers: Leftovers) -> None:
    if workload.suspended and (workload.queued_at or workload.wishes.hold):
        leftovers.waiting.append(workload.ref)
    elif not workload.suspended and workload.intent:
        leftovers.running.append(workload.ref)


def is_our_unit(meta: dict[str, Any]) -> bool:
    """A QueueUnit with our mark that belongs to a job."""
    owners = meta.get("ownerReferences") or []
    return SHOWN in (meta.get("annotations") or {}) and any(owner.get("kind") in KINDS for owner in owners)


def is_our_queue(meta: dict[str, Any]) -> bool:
    """A Queue that Muster made for a quota, in Muster's namespace for Queues."""
    return meta.get("namespace") == QUEUE_NAMESPACE and (meta.get("annotations") or {}).get(MADE) == "true"


def _is_our_group(meta: dict[str, Any]) -> bool:
    """A PodGroup that Muster made for the pods of a user."""
    return MADE_FOR in (meta.get("annotations") or {})


def _asks_for_nodes(meta: dict[str, Any]) -> bool:
    return (meta.get("labels") or {}).get(REQUESTED) == "true"


OURS: dict[ApiResource, Callable[[dict[str, Any]], bool]] = {
    QUEUE_UNITS: is_our_unit,
    QUEUES: is_our_queue,
    **dict.fromkeys(POD_GROUPS, _is_our_group),
    **dict.fromkeys((PROVISIONING_REQUESTS, POD_TEMPLATES), _asks_for_nodes),
}
"""{resource of Muster's objects: whether an object is Muster's}, in the order of the search"""


async def items(transport: ApiTransport, resource: ApiResource) -> AsyncIterator[dict[str, Any]]:
    """Every object of a resource; none where the server does not have the kind."""
    query = {"limit": str(PAGE)}
    while True:
        answer = await transport.request("GET", resource.path(), query=query)
        if answer.status == GONE:
            return
        if not answer.ok:
            raise refusal(answer, say("list {resource}", resource=resource))
        page = msgspec.json.decode(answer.body)
        for item in page.get("items") or []:
            yield item
        onward = (page.get("metadata") or {}).get("continue")
        if not onward:
            return
        query = {"limit": str(PAGE), "continue": onward}


async def remove(transport: ApiTransport, resource: ApiResource, ref: Ref) -> bool:
    """Delete exactly this object; false when it is gone already. Raises CliError when the server refuses."""
    body = msgspec.json.encode({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": ref.uid}})
    answer = await transport.request("DELETE", resource.path(ref.namespace, ref.name), body=body)
    if not answer.ok and answer.status != GONE:
        raise refusal(answer, say("delete {kind} {key}", kind=ref.kind, key=ref.key))
    return answer.ok


def _ref(item: dict[str, Any], kind: str) -> Ref:
    meta = item["metadata"]
    return Ref(kind, meta.get("namespace", ""), meta["name"], meta["uid"])
