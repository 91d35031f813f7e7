"""The pods of an installation that are not ready, with the reason, and controllers of Kubernetes that do nothing.

The status of pods and the leases of controllers need no NATS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from muster.model.api import LEASES, PODS, ApiResource
from muster.model.language import listed, marked, say, translated
from muster.model.text import counted
from muster.ports import ApiTransport, Clock
from muster.runtime.endings import MISCONFIGURED, RESTART, UNAVAILABLE
from muster_cli.findings import Finding
from muster_cli.owners import DEPLOYMENTS, OURS, items

STATEFUL_SETS = ApiResource("apps", "v1", "statefulsets", "StatefulSet")
CONTROLLERS = {
    "kube-controller-manager": marked(
        "no Job, Deployment or other object of Kubernetes gets pods, and no pod is cleaned up"
    ),
    "kube-scheduler": marked("no pod of the default scheduler gets a node"),
}
"""{controller with a Lease of its name in kube-system: the effect of its absence}; without election no Lease exists."""
RENEWED_S = 4.0
"""A lease that is held is renewed within 2 s: one that looks old is read again after this time, so that a
wrong clock of ours makes no finding."""
ENDS = {
    UNAVAILABLE: marked("something that it needs cannot be reached"),
    RESTART: marked("it only needs to be started again"),
    MISCONFIGURED: marked("its settings cannot work"),
    137: marked("it was killed: no memory, or no answer to its probe"),
}
"""{exit code of a service: the meaning}"""

Object = dict[str, Any]


async def pod_findings(transport: ApiTransport, clock: Clock) -> list[Finding]:
    """The deployments and stateful sets of Muster that lack pods, with the reason of each, and the controllers that do
    nothing. Raises ApiUnreachableError.
    """
    owners = await asyncio.gather(
        *(items(transport, resource, "", {"labelSelector": OURS}) for resource in (DEPLOYMENTS, STATEFUL_SETS))
    )
    findings = [*await asyncio.gather(*(_standing(transport, clock, name) for name in CONTROLLERS))]
    for kind, those in zip(("deployment", "statefulset"), owners, strict=True):
        findings += await asyncio.gather(*(_lacking(transport, kind, owner) for owner in those))
    return [finding for finding in findings if finding is not None]


async def _standing(transport: ApiTransport, clock: Clock, name: str) -> Finding | None:
    """The finding about a controller that does not renew its lease."""
    before = await _renewed(transport, name)
    if before is None or clock.now() / 1000 - before.timestamp() < RENEWED_S * 4:
        return None
    await asyncio.sleep(RENEWED_S)
    if await _renewed(transport, name) != before:
        return None
    detail = say(
        "{name} has not renewed its lease since {before:%H:%M:%S} UTC: {controllers}",
        name=name,
        before=before,
        controllers=say(CONTROLLERS[name]),
    )
    fix = say(
        "kubectl -n kube-system get pods -l component={name}; where the provider runs it: ask the provider", name=name
    )
    return Finding("bad", say("controllers"), detail, fix)


async def _renewed(transport: ApiTransport, name: str) -> datetime | None:
    """When a controller renewed its lease last; None where it has none, or none that we may read."""
    answer = await transport.request("GET", LEASES.path("kube-system", name))
    if not answer.ok:
        return None
    try:
        return datetime.fromisoformat(str(msgspec.json.decode(answer.body)["spec"]["renewTime"]))
    except (KeyError, TypeError, ValueError):
        return None


async def _lacking(transport: ApiTransport, kind: str, owner: Object) -> Finding | None:
    """The finding about an owner with fewer ready pods than it wants."""
    meta, status = owner["metadata"], owner.get("status") or {}
    wanted, ready = owner["spec"].get("replicas", 1), status.get("readyReplicas") or 0
    if ready >= wanted:
        return None
    space, name = meta["namespace"], meta["name"]
    labels = (owner["spec"].get("selector") or {}).get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    pods = await items(transport, PODS, space, {"labelSelector": selector}) if selector else []
    reasons = {pod["metadata"]["name"]: reason for pod in pods if (reason := _reason(pod))}
    refused = [
        str(condition.get("message")) for condition in _conditions(owner) if condition.get("type") == "ReplicaFailure"
    ]
    told = [*reasons.values(), *refused][:3]
    why = say(": {detail}", detail=say("; ").join(told)) if told else ""
    detail = say("{ready} of {pods} ready{why}", ready=ready, pods=counted(wanted, "pod"), why=why)
    looks = [_look(pod) for pod in pods if pod["metadata"]["name"] in reasons]
    fix = f"kubectl -n {space} {looks[0] if looks else f'describe {kind} {name}'}"
    return Finding("note" if ready else "bad", f"{kind} {name}", detail, fix)


def _look(pod: Object) -> str:
    """The command that shows why a pod is not ready: its log, or its events."""
    name, containers = pod["metadata"]["name"], _containers(pod)
    if any(_terminated(container) for container in containers):
        return f"logs {name} -p"
    if any((container.get("state") or {}).get("running") for container in containers):
        return f"logs {name}"
    return f"describe pod {name}"


def _reason(pod: Object) -> str:
    """Why a pod is not ready; empty for one that is, or that has ended."""
    status, name = pod.get("status") or {}, pod["metadata"]["name"]
    conditions = {str(condition.get("type")): condition for condition in _conditions(pod)}
    if status.get("phase") in ("Succeeded", "Failed") or conditions.get("Ready", {}).get("status") == "True":
        return ""
    placed = conditions.get("PodScheduled", {})
    if placed.get("status") == "False":
        return say("{name} has no node: {message}", name=name, message=placed.get("message") or placed.get("reason"))
    return f"{name}: {listed(_held_up(pod)) or say('it runs and is not ready')}"


def _held_up(pod: Object) -> Iterator[str]:
    for container in _containers(pod):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            yield str(waiting["reason"])
        ended = _terminated(container)
        if ended:
            meaning = translated(ENDS.get(ended.get("exitCode", 0), ""))
            yield say(
                "it ended with code {exitCode}{meaning}",
                exitCode=ended.get("exitCode"),
                meaning=f" ({meaning})" if meaning else "",
            )


def _terminated(container: Object) -> Object:
    states = (container.get("state") or {}, container.get("lastState") or {})
    return next((state["terminated"] for state in states if state.get("terminated")), {})


def _containers(pod: Object) -> list[Object]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _conditions(owner: Object) -> list[Object]:
    return (owner.get("status") or {}).get("conditions") or []
