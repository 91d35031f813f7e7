"""The doctor looks at the pods of an installation, and at the controllers that make pods."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kit.breaking import named
from muster.fakecluster.apiserver import SimApiServer, SimTransport
from muster.fakecluster.apiserver.kinds import ResourceRules
from muster.model.api import LEASES, PODS
from muster.runtime.clock import SystemClock
from muster_cli import podchecks
from muster_cli.findings import Finding
from muster_cli.owners import DEPLOYMENTS, OURS, owner_findings

Object = dict[str, Any]
SYSTEM = "muster-system"
PART = dict([OURS.split("=")])
APP = {"app": "muster-actuator"}


def server() -> SimApiServer:
    made = SimApiServer(lambda: 0, auto_namespaces=True)
    for resource in (DEPLOYMENTS, podchecks.STATEFUL_SETS):
        made.serve(ResourceRules(resource=resource, fields=frozenset(["metadata.name"])))
    return made


def deployed(made: SimApiServer, *pods: Object, ready: int = 0, **status: Any) -> SimTransport:
    """Deployment muster-actuator, which wants two pods, and these pods of it."""
    spec = {"replicas": 2, "selector": {"matchLabels": APP}}
    meta = {"name": "muster-actuator", "namespace": SYSTEM, "labels": PART}
    body = {"metadata": meta, "spec": spec, "status": {"readyReplicas": ready, **status}}
    made.objects.create(DEPLOYMENTS, SYSTEM, body)
    for index, said in enumerate(pods):
        pod = {"metadata": {"name": f"a-{index}", "labels": APP}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        stored = made.objects.create(PODS, SYSTEM, pod)
        made.objects.replace(PODS, SYSTEM, f"a-{index}", {**stored, "status": said}, "status")
    return SimTransport(made)


def container(**state: Any) -> Object:
    return {"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 3, **state}]}


CRASHED = container(
    state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState={"terminated": {"exitCode": 69, "reason": "Error"}}
)
NO_IMAGE = container(state={"waiting": {"reason": "ImagePullBackOff"}})
RUNS = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
STOPPED = container(state=RUNS, ready=False)
WHOLE = {**container(state=RUNS, ready=True), "conditions": [{"type": "Ready", "status": "True"}]}
HOMELESS = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}],
}
REFUSED = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: compute"}


@pytest.mark.parametrize(
    ("pods", "ready", "grade", "words", "fix"),
    [
        ((CRASHED, WHOLE), 1, "note", "1 of 2 pods ready: a-0: CrashLoopBackOff, it ended with code 69", "logs a-0 -p"),
        ((CRASHED, CRASHED), 0, "bad", "something that it needs cannot be reached", "logs a-0 -p"),
        ((NO_IMAGE,), 0, "bad", "a-0: ImagePullBackOff", "describe pod a-0"),
        ((HOMELESS,), 0, "bad", "a-0 has no node: 0/3 nodes are available", "describe pod a-0"),
        ((WHOLE, STOPPED), 1, "note", "a-1: it runs and is not ready", "logs a-1"),
    ],
)
async def test_pods_that_are_not_ready_are_named(
    pods: tuple[Object, ...], ready: int, grade: str, words: str, fix: str
) -> None:
    found = await podchecks.pod_findings(deployed(server(), *pods, ready=ready), SystemClock())
    assert [each.grade for each in found] == [grade]
    assert named(found, words, f"kubectl -n {SYSTEM} {fix}"), found


async def test_a_deployment_without_pods_says_who_refuses_them() -> None:
    found = await podchecks.pod_findings(deployed(server(), conditions=[REFUSED]), SystemClock())
    assert named(found, "0 of 2 pods ready: exceeded quota: compute", "describe deployment muster-actuator"), found


async def test_a_whole_installation_is_no_finding_and_no_other_owner() -> None:
    transport = deployed(server(), WHOLE, WHOLE, ready=2, availableReplicas=2)
    assert await podchecks.pod_findings(transport, SystemClock()) == []

    async def others(ours: str | None) -> list[Finding]:
        return [each for each in await owner_findings(transport, acting=True, ours=ours) if each.grade == "bad"]

    assert await others("main/log") == [], "it is that of the log"
    assert await others(None) == [], "NATS is away: it may be that of the log"
    assert named(await others(""), "other owner Muster", "scale it to 0"), "nobody has named a log"


@pytest.mark.parametrize("name", [*podchecks.CONTROLLERS])
async def test_a_controller_that_stands_still_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podchecks, "RENEWED_S", 0.05)

    async def told(age_s: float, *, alive: bool = False) -> list[Finding]:
        made = server()
        spec = {"holderIdentity": "cp-1", "leaseDurationSeconds": 15}

        def renewed(age_s: float) -> Object:
            at = datetime.now(UTC) - timedelta(seconds=age_s)
            return {**spec, "renewTime": f"{at:%Y-%m-%dT%H:%M:%S.%f}Z"}

        body = {"metadata": {"name": name, "namespace": "kube-system"}, "spec": renewed(age_s)}
        made.objects.create(LEASES, "kube-system", body)
        if alive:  # Its clock, or ours, is wrong by so much.
            waited = asyncio.sleep

            async def renews(seconds: float) -> None:
                stored = made.objects.get(LEASES, "kube-system", name)
                made.objects.replace(LEASES, "kube-system", name, {**stored, "spec": renewed(age_s - 2)})
                await waited(seconds)

            monkeypatch.setattr(asyncio, "sleep", renews)
        return await podchecks.pod_findings(SimTransport(made), SystemClock())

    assert await told(0.1) == []
    assert named(await told(40), f"{name} has not renewed its lease since", f"component={name}")
    assert await told(40, alive=True) == []
