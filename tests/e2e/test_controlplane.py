"""Proves that the test kit's control plane is Kubernetes, as far as our tests rely on it."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import aiohttp
import pytest

from kit.controlplane import ControlPlane, ControlPlaneError, User
from kit.controlplane.pytest_plugin import MakeNode
from kit.kubeclient import ApiError, KubeClient, Object, condition
from kit.waiting import until
from kit.workloads import pod, wait_for_phase, wait_until_gone

TESTS = str(Path(__file__).parents[1])

WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.kit.muster.dev}
spec:
  group: kit.muster.dev
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer}}
---
apiVersion: kit.muster.dev/v1
kind: Widget
metadata: {name: sample}
spec: {size: 1}
"""
WIDGET = ("kit.muster.dev/v1", "Widget")


async def test_serves_the_version_asked_for(control_plane: ControlPlane, kube: KubeClient) -> None:
    served = await kube.request("GET", "/version")
    assert served["gitVersion"] == f"v{control_plane.version}"
    assert [served["major"], served["minor"]] == control_plane.version.split(".")[:2]


async def test_custom_objects_take_json_patches_that_test(kube: KubeClient, namespace: str) -> None:
    await kube.apply_yaml(WIDGETS, namespace=namespace)
    grow = [
        {"op": "test", "path": "/spec/size", "value": 1},
        {"op": "replace", "path": "/spec/size", "value": 2},
    ]
    patched = await kube.patch(*WIDGET, "sample", namespace, patch=grow)
    assert patched["spec"]["size"] == 2
    with pytest.raises(ApiError) as refused:
        await kube.patch(*WIDGET, "sample", namespace, patch=grow)
    assert refused.value.status == 422
    merged = await kube.patch(*WIDGET, "sample", namespace, patch={"spec": {"size": 3}})
    assert merged["spec"]["size"] == 3


async def test_a_pod_is_scheduled_runs_and_leaves(kube: KubeClient, namespace: str, make_node: MakeNode) -> None:
    node = await make_node("a")
    await kube.create(pod("stays", namespace))
    running = await wait_for_phase(kube, namespace, "stays", "Running")
    assert running["spec"]["nodeName"] == node["metadata"]["name"]
    assert running["status"]["containerStatuses"][0]["ready"]

    await kube.delete("v1", "Pod", "stays", namespace, uid=running["metadata"]["uid"])
    await wait_until_gone(kube, "v1", "Pod", "stays", namespace)


async def test_annotations_decide_how_a_pod_ends(kube: KubeClient, namespace: str, make_node: MakeNode) -> None:
    await make_node("a")
    await kube.create(pod("ends", namespace, run_for="200ms"))
    await kube.create(pod("fails", namespace, fail_after="200ms"))
    await kube.create(pod("lingers", namespace, stop_after="1h"))
    await wait_for_phase(kube, namespace, "ends", "Succeeded")
    failed = await wait_for_phase(kube, namespace, "fails", "Failed")
    state = failed["status"]["containerStatuses"][0]["state"]
    assert state["terminated"]["exitCode"] == 1

    await wait_for_phase(kube, namespace, "lingers", "Running")
    await kube.delete("v1", "Pod", "lingers", namespace)
    stopping = await kube.get("v1", "Pod", "lingers", namespace)
    assert stopping["metadata"]["deletionTimestamp"]
    assert stopping["status"]["phase"] == "Running"


async def test_a_pod_that_does_not_fit_stays_pending(kube: KubeClient, namespace: str, make_node: MakeNode) -> None:
    await make_node("small", {"cpu": "1"})
    await kube.create(pod("first", namespace))
    await wait_for_phase(kube, namespace, "first", "Running")
    await kube.create(pod("second", namespace))

    async def unschedulable() -> bool:
        second = await kube.get("v1", "Pod", "second", namespace)
        return condition(second, "PodScheduled").get("reason") == "Unschedulable"

    await until(unschedulable, what="the second pod to be unschedulable")


async def test_a_broken_node_is_tainted_and_recovers(kube: KubeClient, namespace: str, make_node: MakeNode) -> None:
    name = (await make_node("a"))["metadata"]["name"]

    async def taints() -> set[str]:
        node = await kube.get("v1", "Node", name)
        return {taint["key"] for taint in node["spec"]["taints"]}

    async def tainted() -> bool:
        return "node.kubernetes.io/not-ready" in await taints()

    async def clean() -> bool:
        return "node.kubernetes.io/not-ready" not in await taints()

    broken = {"metadata": {"annotations": {"kit.muster.dev/broken": "true"}}}
    await kube.patch("v1", "Node", name, patch=broken)
    await until(tainted, what="the broken node to be tainted")
    mended = {"metadata": {"annotations": {"kit.muster.dev/broken": None}}}
    await kube.patch("v1", "Node", name, patch=mended)
    await until(clean, what="the mended node to lose its taint")


async def test_a_suspended_job_completes_when_resumed(kube: KubeClient, namespace: str, make_node: MakeNode) -> None:
    await make_node("a")
    template = pod("unused", namespace, run_for="200ms")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "work", "namespace": namespace},
        "spec": {
            "suspend": True,
            "completions": 2,
            "parallelism": 2,
            "template": {
                "metadata": {"annotations": template["metadata"]["annotations"]},
                "spec": template["spec"],
            },
        },
    }
    await kube.create(job)

    async def is_now(wanted: str) -> bool:
        found = await kube.get("batch/v1", "Job", "work", namespace)
        return bool(condition(found, wanted).get("status") == "True")

    await until(lambda: is_now("Suspended"), what="the job to be seen as suspended")
    assert not await kube.list_objects("v1", "Pod", namespace)
    await kube.patch("batch/v1", "Job", "work", namespace, patch={"spec": {"suspend": False}})
    await until(lambda: is_now("Complete"), 60, what="the resumed job to complete")


async def test_a_deleted_namespace_takes_its_content_along(kube: KubeClient, namespace: str) -> None:
    note = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "note", "namespace": namespace},
    }
    await kube.create(note)
    await kube.delete("v1", "Namespace", namespace)
    await wait_until_gone(kube, "v1", "Namespace", namespace, timeout_s=60)
    assert await kube.find("v1", "ConfigMap", "note", namespace) is None


async def test_dependents_of_a_deleted_owner_are_collected(kube: KubeClient, namespace: str) -> None:
    def note(name: str, **meta: object) -> Object:
        meta = {"name": name, "namespace": namespace, **meta}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}

    owner = await kube.create(note("owner"))
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    await kube.create(note("dependent", ownerReferences=[reference]))
    await kube.delete("v1", "ConfigMap", "owner", namespace)
    await wait_until_gone(kube, "v1", "ConfigMap", "dependent", namespace, timeout_s=60)


async def test_an_outage_keeps_data_and_all_components_return(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, make_node: MakeNode
) -> None:
    await make_node("a")
    before = await kube.create(pod("before", namespace))
    await wait_for_phase(kube, namespace, "before", "Running")

    async with control_plane.outage():
        with pytest.raises(aiohttp.ClientConnectionError):
            await kube.get("v1", "Pod", "before", namespace)

    after = await kube.get("v1", "Pod", "before", namespace)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    await kube.create(pod("after", namespace))
    await wait_for_phase(kube, namespace, "after", "Running")

    await control_plane.restart_apiserver()
    assert (await kube.get("v1", "Pod", "after", namespace))["metadata"]["name"] == "after"
    for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"):
        assert control_plane.component(name).running, name


@pytest.mark.usefixtures("control_plane_binaries")
async def test_users_have_only_the_rights_that_rbac_gives() -> None:
    reader = User("reader", groups=("team-a",))
    async with ControlPlane(users=[reader], controller_manager=False, scheduler=False, kwok=False) as plane:
        async with KubeClient(plane.url, token=reader.token, ca_file=plane.ca_file) as kube:
            review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
            me = await kube.create({**review, "metadata": {}})
            assert me["status"]["userInfo"]["username"] == "reader"
            assert "team-a" in me["status"]["userInfo"]["groups"]
            with pytest.raises(ApiError) as refused:
                await kube.list_objects("v1", "Pod", "default")
            assert refused.value.status == 403
        folder, process = plane.folder, plane.component("etcd").process
    assert not folder.exists()
    assert process is not None
    assert process.returncode == -signal.SIGKILL


@pytest.mark.usefixtures("control_plane_binaries")
async def test_a_server_that_ends_is_reported_with_its_last_words() -> None:
    plane = ControlPlane(
        controller_manager=False,
        scheduler=False,
        kwok=False,
        arguments={"kube-apiserver": ["--no-such-flag"]},
    )
    with pytest.raises(ControlPlaneError, match=r"kube-apiserver: it exited.*(\n.*)*no-such-flag"):
        await plane.start()


async def test_servers_die_with_the_process_that_started_them(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from kit.controlplane.process import Component
log = Path({str(tmp_path)!r}) / "log"
sleeper = Component("sleeper", ["/bin/sleep", "600"], "http://127.0.0.1:1", log)
sleeper.start()
print(sleeper.process.pid, flush=True)
sys.stdin.read()
"""
    asker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdin=PIPE, stdout=PIPE, env={"PYTHONPATH": TESTS}
    )
    assert asker.stdout is not None
    pid = int(await asker.stdout.readline())
    asker.kill()
    await asker.wait()

    async def ended() -> bool:
        return has_ended(pid)

    await until(ended, what=f"process {pid} to be killed")


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie that its new parent has not looked at yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True
