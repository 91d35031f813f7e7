"""Other queue managers that may admit the same jobs: two managers of one job undo each other's work."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from muster.core.workloads.registry import KINDS
from muster.model.api import LEASES, ApiResource
from muster.model.language import listed, marked, say, translated
from muster.ports import ApiTransport, Clock
from muster.runtime.clock import SystemClock
from muster.runtime.clusterlease import NAME, NAMESPACE, PATH
from muster_cli.findings import Finding, Grade

DEPLOYMENTS = ApiResource("apps", "v1", "deployments", "Deployment")
CONFIG_MAPS = ApiResource("", "v1", "configmaps", "ConfigMap")

FRESH_MS = 60_000
"""A lease renewed within this time has a living holder."""
OURS = "app.kubernetes.io/part-of=muster"


class QueueManager(Struct, frozen=True):
    """A queue manager of the same kinds of jobs. ``leases``: beginnings of the lease names."""

    name: str
    deployments: tuple[str, ...]
    namespaces: tuple[str, ...]
    leases: tuple[str, ...]
    does: str = marked("is active and admits jobs too")
    way_out: str = ""
    """The way out; empty: stop the manager, or take the kinds from the manager."""


OWNERS = (
    QueueManager(
        "kube-queue (ack-kube-queue)", ("kube-queue-controller", "job-extensions"), ("kube-queue",), ("kube-queue",)
    ),
    QueueManager(
        "koord-queue",
        ("koord-queue", "koord-queue-controller", "koord-queue-controllers"),
        ("koord-queue",),
        ("koord-queue",),
    ),
    QueueManager("Kueue", ("kueue-controller-manager",), ("kueue-system",), ("c1f6bfd2.kueue.x-k8s.io",)),
    QueueManager(
        "KAI Scheduler",
        ("kai-scheduler-default", "kai-scheduler", "kai-operator"),
        ("kai-scheduler",),
        ("",),
        marked("runs here, and binds pods that name kai-scheduler, which Muster binds too"),
        marked(
            "scale the deployments of namespace kai-scheduler to 0 before Muster acts here; its "
            "Queues and labels are read as they are"
        ),
    ),
)
KUEUE_CONFIG = ("kueue-system", "kueue-manager-config", "controller_manager_config.yaml")
KUEUE_FRAMEWORKS = {kind: f"{row.resource.group}/{kind.lower()}" for kind, row in KINDS.items()}
"""{kind: Kueue's name for the kind}"""


async def owner_findings(
    transport: ApiTransport,
    *,
    acting: bool,
    clock: Clock | None = None,
    kinds: Collection[str] = ("RayJob",),
    ours: str | None = "",
) -> list[Finding]:
    """The other active owners, worst first: a problem for acting, a note for watching.

    ``ours``: the holder of the cluster's lease that is not another owner, see ``clusterlease.holder_of``; empty where
    no log is looked at, and None where the log does not tell: the Muster that runs here may be that of the log.
    """
    now = (clock or SystemClock()).now()
    active = await asyncio.gather(*(_active(transport, owner, now) for owner in OWNERS))
    grade: Grade = "bad" if acting else "note"
    findings = []
    for owner, why in zip(OWNERS, active, strict=True):
        if not why or (owner.name == "Kueue" and not await _kueue_takes(transport, kinds)):
            continue
        fix = translated(owner.way_out) or say(
            "stop it or take {kinds} from it before Muster acts here", kinds=listed(kinds)
        )
        findings.append(Finding(grade, say("other owner {name}", name=owner.name), say(owner.does), f"{fix} ({why})"))
    deployments = await own_deployments(transport)
    if deployments and ours == "":
        fix = say("stop it (scale it to 0), or leave acting to it")
        findings.append(
            Finding(
                grade,
                say("other owner Muster"),
                say("runs here already: {deployments}", deployments=listed(deployments)),
                fix,
            )
        )
    lease = await acting_lease(transport, now)
    if lease and ours is not None and lease != ours:
        text = say(
            "cell/log {lease} acts here: it holds Lease {namespace}/{name}", lease=lease, namespace=NAMESPACE, name=NAME
        )
        findings.append(
            Finding(grade, say("acting Muster"), text, say("leave acting to it, or scale its actuator to 0"))
        )
    alone = Finding(
        "ok",
        say("other owners"),
        say("none of kube-queue, koord-queue, Kueue, KAI Scheduler or another Muster acts here"),
    )
    return findings or [alone]


async def acting_lease(transport: ApiTransport, now: int) -> str:
    """The holder of the lease of the cluster, ``CELL/LOG``; empty when it has no holder, or cannot be read."""
    answer = await transport.request("GET", PATH)
    spec = (msgspec.json.decode(answer.body).get("spec") or {}) if answer.ok else {}
    if not spec.get("holderIdentity") or not _is_fresh(spec, now):
        return ""
    return str(spec["holderIdentity"])


async def _active(transport: ApiTransport, owner: QueueManager, now: int) -> str:
    """The sign that an owner is active; empty without a sign."""
    for name in owner.deployments:
        for item in await items(transport, DEPLOYMENTS, "", {"fieldSelector": f"metadata.name={name}"}):
            if (item.get("status") or {}).get("availableReplicas"):
                return f"deployment {item['metadata']['namespace']}/{name}"
    for namespace in owner.namespaces:
        for item in await items(transport, LEASES, namespace, {}):
            name, spec = item["metadata"]["name"], item.get("spec") or {}
            if name.startswith(owner.leases) and spec.get("holderIdentity") and _is_fresh(spec, now):
                return say(
                    "lease {namespace}/{name} held by {holder}",
                    namespace=namespace,
                    name=name,
                    holder=spec["holderIdentity"],
                )
    return ""


def _is_fresh(spec: dict[str, Any], now: int) -> bool:
    try:
        renewed = datetime.fromisoformat(str(spec.get("renewTime"))).timestamp() * 1000
    except ValueError:
        return False
    return now - renewed < FRESH_MS


async def _kueue_takes(transport: ApiTransport, kinds: Collection[str]) -> bool:
    """Whether Kueue's configuration lists any of the kinds; True when the configuration cannot be read."""
    namespace, name, key = KUEUE_CONFIG
    answer = await transport.request("GET", CONFIG_MAPS.path(namespace, name))
    if not answer.ok:
        return True
    text = str((msgspec.json.decode(answer.body).get("data") or {}).get(key, ""))
    return any(KUEUE_FRAMEWORKS[kind] in text for kind in kinds)


async def own_deployments(transport: ApiTransport) -> list[str]:
    """Deployments of Muster that have a running pod, ``namespace/name``."""
    deployments = await items(transport, DEPLOYMENTS, "", {"labelSelector": OURS})
    running = [item for item in deployments if (item.get("status") or {}).get("availableReplicas")]
    return [f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in running]


async def items(
    transport: ApiTransport, resource: ApiResource, namespace: str, query: dict[str, str]
) -> list[dict[str, Any]]:
    """The objects a list shows; none when we may not look, or there is nothing of the kind."""
    answer = await transport.request("GET", resource.path(namespace), query={**query, "limit": "50"})
    if not answer.ok:
        return []
    listed: list[dict[str, Any]] = msgspec.json.decode(answer.body).get("items") or []
    return listed
