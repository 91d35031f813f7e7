"""Broken pods on a real API server: every surface says the same cause.

The pods are made by the real job controller and bound, or not, by the real scheduler; what the kubelet would say of
them is written in its place.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator

from kit import jobs
from kit.brokenpods import BROKEN
from kit.cluster import SCHEDULING, Cluster
from kit.controlplane import ControlPlane
from kit.installation import figure
from kit.kubeclient import Object
from kit.muster import Muster, running
from kit.promql import Recorded
from kit.published import SCHEMAS
from muster.bus.server import EmbeddedServer
from muster.core.stage import Folder
from muster.core.workloads.registry import KINDS
from muster.events import subjects
from muster.serving.joblist import job_rows
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState

NEVER = {"kit.muster.dev/start-after": "99h"}
"""KWOK leaves such a pod alone once it is bound."""
KINDS_OF_BREAKAGE = {
    code: (status, words) for name, (status, code, words) in BROKEN.items() if name not in ("image name", "killed")
}
"""One of each code; that of the scheduler is its own."""
OF_SCHEDULER = "Unschedulable"


@pytest_asyncio.fixture
async def muster(muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Muster]:
    async with Cluster(muster_plane, pods=True) as cluster, running(cluster, nats_server.url, tmp_path) as found:
        await cluster.apply_tree()
        yield found


def name_of(code: str) -> str:
    return code.lower()


def job_of(code: str) -> Object:
    job = jobs.job(name_of(code), cpu="1", parallelism=1, backoffLimit=0)
    template = job["spec"]["template"]
    template.setdefault("metadata", {})["annotations"] = NEVER
    if code == OF_SCHEDULER:
        template["spec"]["nodeSelector"] = {"nowhere": "true"}
    return job


async def pod_of(cluster: Cluster, code: str) -> str:
    """The pod of a job, once it is bound; that of no node as soon as it is there."""

    async def found() -> str:
        pods = await cluster.kube.list_objects("v1", "Pod", "video", labels=f"job-name={name_of(code)}")
        return next(
            (pod["metadata"]["name"] for pod in pods if code == OF_SCHEDULER or pod["spec"].get("nodeName")), ""
        )

    return await cluster.until(found, 60.0, what=f"the pod of {code}")


async def published(muster: Muster, code: str) -> str:
    """The cause that the public event says; its header names the schema, which allows the body."""
    subject = subjects.public_subject(muster.cell, "workload_held_up", "video", name_of(code))
    found = await muster.process.js.last(subjects.PUBLIC_STREAM, subject)
    if found is None:
        return ""
    body = json.loads(found.data)
    schema = json.loads((SCHEMAS / "workload_held_up.schema.json").read_text())
    assert found.headers["ce-dataschema"] == schema["$id"]
    Draft202012Validator(schema).validate(body)
    return str(body["cause"])


async def surfaces(muster: Muster, code: str, state: ReadState, page: Recorded) -> dict[str, str]:
    """What each surface says of the job of a code."""
    cluster, name = muster.cluster, name_of(code)
    unit = await cluster.kube.find(SCHEDULING, "QueueUnit", name + KINDS["Job"].unit_suffix, "video")
    job = await cluster.kube.get("batch/v1", "Job", name, "video")
    ours = [each["reason"] for each in await cluster.events(job["metadata"]["uid"]) if each["reason"] == code]
    row = next((each for each in job_rows(state, state.now) if each.key == f"video/{name}"), None)
    words = "nodes are available" if code == OF_SCHEDULER else KINDS_OF_BREAKAGE[code][1]
    counted = page.ask(f'sum(muster_held_up_workloads_total{{cause="{code}"}})')
    counted |= page.ask(f'sum(muster_finished_workloads_total{{cause="{code}"}})')
    return {
        "public event": await published(muster, code),
        "unit": code if words in ((unit or {}).get("status") or {}).get("message", "") else "",
        "ls": row.cause if row is not None else "",
        "event": (ours or [""])[0] if code != "InitWaiting" else code,
        "metric": code if counted else "",
    }


async def test_every_surface_says_why_pods_do_not_run(muster: Muster, request: pytest.FixtureRequest) -> None:
    cluster, loop = muster.cluster, asyncio.get_running_loop()
    codes = [*KINDS_OF_BREAKAGE]
    assert len(codes) >= 10
    for code in codes:
        await cluster.submit(job_of(code))
    pods = {code: await pod_of(cluster, code) for code in codes}
    begun = loop.time()
    for code, (status, _) in KINDS_OF_BREAKAGE.items():
        if code != OF_SCHEDULER:
            await cluster.kube.patch("v1", "Pod", pods[code], "video", patch={"status": status}, subresource="status")
    silent: dict[str, dict[str, str]] = {}

    async def all_say() -> bool:
        state, folder = ReadModel().initial(), Folder(ReadModel())
        for stored in await muster.commits():
            folder.fold(state, stored)
        page = Recorded()
        page.take(muster.process.metrics.registry.collect(), 0)
        said = {code: await surfaces(muster, code, state, page) for code in codes}
        silent.clear()
        silent.update({code: found for code, found in said.items() if not all(text == code for text in found.values())})
        return not silent

    try:
        await cluster.until(all_say, 20.0)
    except AssertionError:
        raise AssertionError(silent) from None
    figure(request, "from the pods' status to every surface", f"{loop.time() - begun:.1f} s for {len(codes)} jobs")
