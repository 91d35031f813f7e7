"""A kind that a platform team defines, on a real API server: queued, started and released; and none in silence."""

from __future__ import annotations

import copy
from pathlib import Path

import yaml

from kit.cluster import RUN_FOR, SCHEDULING, Cluster
from kit.controlplane import ControlPlane
from kit.guarded import ALICE, MANAGED, client, refused
from kit.kubeclient import ApiError, KubeClient, Object
from kit.muster import running
from kit.waiting import until
from kit.widgets import WIDGET, WidgetOperator, crd, defined, widget
from muster.bus.server import EmbeddedServer
from muster.core.workloads.registry import KINDS
from muster.events.decisions import GangAdmitted, QuotaReleased, WorkloadQueued
from muster.events.facts import KindsConfigured
from muster.kube.config import connect
from muster.kube.sources import FromKubeconfig
from muster.runtime import kinds
from muster_cli.definedkinds import read_kinds, rendered
from muster_cli.kindchecks import kind_findings

VERSION = "example.com/v1"


def lasting(made: Object, run_for: str) -> Object:
    made["spec"]["template"].setdefault("metadata", {}).setdefault("annotations", {})[RUN_FOR] = run_for
    return made


async def serve(kube: KubeClient, definition: Object) -> None:
    """The API server knows the kind from now on."""
    await kube.apply(definition)
    kind = definition["spec"]["names"]["kind"]

    async def served() -> bool:
        try:
            await kube.list_objects(VERSION, kind, "video")
        except ApiError:
            return False
        return True

    await until(served, what=f"{kind}s to be served")


async def test_widgets_wait_run_one_after_the_other_and_their_log_replays_without_the_definition(
    muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with Cluster(muster_plane, pods=True) as cluster:
        await serve(cluster.kube, crd())
        cluster.operate(WidgetOperator())
        with defined():
            async with running(cluster, nats_server.url, tmp_path) as muster:
                await cluster.apply_tree()
                for name in ("one", "two"):
                    await cluster.submit(lasting(widget(name, cpu="5", size=2), "99h" if name == "one" else "1s"))

                async def phases(**wanted: str) -> bool:
                    units = {
                        name: await cluster.kube.find(SCHEDULING, "QueueUnit", f"{name}-widget-qu", "video")
                        for name in wanted
                    }
                    shown = {name: ((unit or {}).get("status") or {}).get("phase", "") for name, unit in units.items()}
                    return shown == wanted

                await cluster.until(lambda: phases(one="Running", two="Enqueued"), 90.0, "one to run, and two to wait")
                await cluster.kube.delete(VERSION, "Widget", "one", "video")
                await cluster.until(lambda: phases(two="Succeed"), 90.0, "two to be over")
                [configured] = await muster.happened(KindsConfigured)
                assert configured.definitions.keys() == {"Widget"}
                for kind in (WorkloadQueued, GangAdmitted, QuotaReleased):
                    assert {each.ref.kind for each in await muster.happened(kind)} == {"Widget"}
    assert "Widget" not in KINDS


async def test_doctor_names_the_kind_that_nobody_reads(plane: ControlPlane) -> None:
    unread = copy.deepcopy(crd())
    unread["metadata"]["name"] = "gadgets.example.com"
    unread["spec"]["names"] = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"}
    schema = unread["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    schema["suspend"] = {"type": "boolean"}
    async with client(plane, plane.admin) as admin:
        await serve(admin, unread)
        made = {"apiVersion": VERSION, "kind": "Gadget", "metadata": {"name": "g", "namespace": "video"}}
        await admin.create({**made, "spec": {"suspend": True}})
        transport = await connect(FromKubeconfig(str(plane.kubeconfig)))
        try:

            async def named() -> bool:
                found = [each for each in await kind_findings(transport) if each.title == "kind Gadget"]
                return [each.grade for each in found] == ["bad"] and "1 object is suspended" in found[0].detail

            await until(named, what="doctor to name the kind")
        finally:
            await transport.close()
        await admin.delete(VERSION, "Gadget", "g", "video")


async def test_what_is_rendered_guards_the_kind(plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "widget.yaml").write_text(WIDGET)
    with defined():
        made = list(yaml.safe_load_all(rendered(read_kinds([tmp_path / "widget.yaml"]), Path("deploy/policies"))))
    async with client(plane, plane.admin) as admin, client(plane, ALICE) as alice:
        await serve(admin, crd())
        group = "rbac.authorization.k8s.io"
        rule = {"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["*"]}
        role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": "widgets"}, "rules": [rule]}
        subject = {"kind": "User", "name": ALICE.name, "apiGroup": group}
        bound = {"roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "widgets"}, "subjects": [subject]}
        binding = {**role, "kind": "ClusterRoleBinding", **bound}
        del binding["rules"]
        for each in (role, binding, *made):
            if each is not None and not each["kind"].startswith("MutatingAdmissionPolicy"):
                await admin.apply(each, field_manager=kinds.NAME)
        accounts = await admin.get("v1", "ConfigMap", "muster-controllers", "muster-system")
        assert {"jobs.batch", "widgets.example.com"} <= accounts["data"].keys(), "other kinds keep their accounts"

        async def guards() -> bool:
            try:
                await alice.create(widget("runs", MANAGED, paused=False))
            except ApiError as err:
                return "spec.paused must be true" in str(err)
            await alice.delete(VERSION, "Widget", "runs", MANAGED)
            return False

        await until(guards, 30.0, what="the policies to know Widgets")
        await alice.create(widget("waits", MANAGED))
        start = alice.patch(VERSION, "Widget", "waits", MANAGED, patch={"spec": {"paused": False}})
        await refused(start, "it stays suspended: Muster starts this job when it is its turn")
        admit = {"spec": {"paused": False}, "metadata": {"annotations": {"muster.dev/intent": "1-7-0"}}}
        await admin.patch(VERSION, "Widget", "waits", MANAGED, patch=admit)
        grows = alice.patch(VERSION, "Widget", "waits", MANAGED, patch={"spec": {"size": 5_000}})
        await refused(grows, "it runs with the size that was admitted: spec.size")
        await alice.patch(VERSION, "Widget", "waits", MANAGED, patch={"spec": {"ttl": 60}})
        await admin.delete(VERSION, "Widget", "waits", MANAGED)
        for manifest in made:  # Other tests ask what each account may do.
            if manifest is not None and manifest["kind"].startswith("ClusterRole"):
                await admin.delete(f"{group}/v1", manifest["kind"], manifest["metadata"]["name"])
