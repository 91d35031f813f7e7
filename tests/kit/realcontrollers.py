"""The real controllers of JobSets, LeaderWorkerSets and TrainJobs on this machine, against a real control plane.

Nothing of them is in this repository. MUSTER_TEST_CONTROLLERS names a folder with their sources (``jobset``, ``lws``,
``trainer``) and their programs (``bin/jobset``, ``bin/lws``, ``bin/trainer-controller-manager``).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import trustme
import yaml
from msgspec import Struct

from kit.cluster import RUN_FOR, add_nodes, furnish
from kit.controlplane import ControlPlane
from kit.controlplane.process import Component, free_port
from kit.controlplane.settings import LOOPBACK
from kit.kubeclient import KubeClient
from kit.waiting import until

Object = dict[str, Any]

FOLDER = "MUSTER_TEST_CONTROLLERS"
CRDS = "apiextensions.k8s.io/v1"
HOOKS = "admissionregistration.k8s.io/v1"
TRAINER = "trainer-controller-manager"
CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
SECRET, SYSTEM = "kubeflow-trainer-webhook-cert", "kubeflow-system"


class Source(Struct, frozen=True):
    """Where the manifests of a controller are in its sources, and the API group of its configuration file."""

    name: str
    definitions: str
    webhooks: str
    group: str


SOURCES = (
    Source("jobset", "config/components/crd/bases", "config/components/webhook/manifests.yaml", "jobset.x-k8s.io"),
    Source("lws", "config/crd/bases", "config/webhook/manifests.yaml", "lws.x-k8s.io"),
)
SELECTED = {"jobset": "jobset.sigs.k8s.io/jobset-name", "lws": "leaderworkerset.sigs.k8s.io/name"}
"""The label of the pods that the webhooks of a controller are asked about, as their installations have it."""


def folder() -> Path:
    return Path(os.environ[FOLDER])


@contextlib.asynccontextmanager
async def with_controllers() -> AsyncIterator[ControlPlane]:
    """A control plane with nodes that run pods, and the three controllers on it."""
    async with ControlPlane(prepare=_furnish) as plane, contextlib.AsyncExitStack() as stack:
        await add_nodes(plane)
        kube = await stack.enter_async_context(KubeClient(plane.url, token=plane.admin.token, ca_file=plane.ca_file))
        for source in SOURCES:
            await _run(plane, kube, source, stack)
        await _run_trainer(plane, kube, stack)
        yield plane


async def _furnish(plane: ControlPlane) -> None:
    await furnish(plane)
    async with KubeClient(plane.url, token=plane.admin.token, ca_file=plane.ca_file) as kube:
        for body in _definitions():
            await kube.put(body)


def _definitions() -> Iterator[Object]:
    homes = [folder() / source.name / source.definitions for source in SOURCES]
    for home in (*homes, folder() / "trainer/manifests/base/crds"):
        for path in sorted(home.iterdir()):
            found = yaml.safe_load_all(path.read_text())
            yield from (body for body in found if body["kind"] == "CustomResourceDefinition")


async def _run(plane: ControlPlane, kube: KubeClient, source: Source, stack: contextlib.AsyncExitStack) -> None:
    """Start a controller with a certificate of ours, and have the API server ask its webhooks."""
    home = plane.folder / source.name
    home.mkdir()
    authority = trustme.CA()
    certificate = authority.issue_cert(LOOPBACK)
    certificate.private_key_pem.write_to_path(str(home / "tls.key"))
    certificate.cert_chain_pems[0].write_to_path(str(home / "tls.crt"))
    health, port = f"{LOOPBACK}:{free_port()}", free_port()
    settings = {
        "apiVersion": f"config.{source.group}/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "health": {"healthProbeBindAddress": health},
        "metrics": {"bindAddress": f"{LOOPBACK}:{free_port()}"},
        "webhook": {"host": LOOPBACK, "port": port, "certDir": str(home)},
        "internalCertManagement": {"enable": False},
    }
    (home / "settings.yaml").write_text(yaml.safe_dump(settings))
    command = [str(folder() / "bin" / source.name), f"--config={home / 'settings.yaml'}"]
    await _start(plane, source.name, command, health, stack)
    authority_text = base64.b64encode(authority.cert_pem.bytes()).decode()
    for body in yaml.safe_load_all((folder() / source.name / source.webhooks).read_text()):
        body["metadata"]["name"] = f"{source.name}-{body['metadata']['name']}"
        for hook in body["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": f"https://{LOOPBACK}:{port}{path}", "caBundle": authority_text}
            if hook["rules"][0]["resources"] == ["pods"]:
                some = {"key": SELECTED[source.name], "operator": "Exists"}
                hook["objectSelector"] = {"matchExpressions": [some]}
        await kube.create(body)


async def _run_trainer(plane: ControlPlane, kube: KubeClient, stack: contextlib.AsyncExitStack) -> None:
    """Start the trainer: it makes its certificates, which a kubelet would put into its folder. Its webhooks only
    validate, by the name of a Service: nothing asks them here.
    """
    await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    await kube.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": SYSTEM}})
    meta = {"name": "validator.trainer.kubeflow.org"}
    await kube.create({"apiVersion": HOOKS, "kind": "ValidatingWebhookConfiguration", "metadata": meta, "webhooks": []})
    health = f"{LOOPBACK}:{free_port()}"
    command = [str(folder() / "bin" / TRAINER), f"--health-probe-bind-address={health}",
               f"--webhook-server-port={free_port()}"]  # fmt: skip
    starting = asyncio.ensure_future(_start(plane, TRAINER, command, health, stack))

    async def made() -> Object | None:
        if starting.done():
            starting.result()
        return (await kube.get("v1", "Secret", SECRET, SYSTEM)).get("data")

    _keep(await until(made, 60.0, what="the certificates of the trainer"))
    await starting
    runtime = folder() / "trainer/manifests/base/runtimes/torch_distributed.yaml"
    for body in yaml.safe_load_all(runtime.read_text()):
        for role in body["spec"]["template"]["spec"]["replicatedJobs"]:  # Its pods run until a test ends them.
            role["template"]["spec"]["template"]["metadata"] = {"annotations": {RUN_FOR: "99h"}}
        await kube.create(body)


def _keep(secret: Object) -> None:
    CERTIFICATES.mkdir(parents=True, exist_ok=True)
    for name, text in secret.items():
        (CERTIFICATES / name).write_bytes(base64.b64decode(text))


async def _start(
    plane: ControlPlane, name: str, command: list[str], health: str, stack: contextlib.AsyncExitStack
) -> None:
    component = Component(
        name=name,
        command=[*command, f"--kubeconfig={plane.kubeconfig}"],
        ready_url=f"http://{health}/readyz",
        log=plane.folder / "logs" / f"{name}.log",
    )
    component.start()
    stack.push_async_callback(component.kill)
    await component.wait_ready(120.0)
