"""A kubelet for tests: it plays nodes, and runs the pods of Muster's images as the processes their containers say.

What the real one does is done here: secrets, ConfigMaps, projected volumes, disks and the token of the pod's account
become files; probes decide what is ready; what ends is started again; a deleted pod is told to end and has its time.
Differences: a second between restarts, not ten and more; pods of other images run at once and do nothing, and end when
annotation `kit.muster.dev/run-for` says so.
"""

import asyncio
import base64
import contextlib
import os
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from kit.beside import still_running
from kit.cluster import RUN_FOR
from kit.container import Container
from kit.controlplane import ControlPlane, User
from kit.kubeclient import ApiError, KubeClient, Object

POLL_S = 0.25
RESTART_S = 1.0
HEARTBEAT_S = 15.0
ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
READY = ("ContainersReady", "Ready")
NODE = {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "8", "pods": "110"}
Program = Callable[[Sequence[str]], Sequence[str]]
"""What an image makes of a command."""


class Pod:
    """A pod that runs here."""

    def __init__(self, kubelet: "Kubelet", found: Object, ip: str) -> None:
        self.name: str = found["metadata"]["name"]
        self.namespace: str = found["metadata"]["namespace"]
        self.uid: str = found["metadata"]["uid"]
        self.spec: Object = found["spec"]
        self.labels: Mapping[str, str] = found["metadata"].get("labels") or {}
        self.ip = ip
        self.containers: dict[str, Container] = {}
        self.ready: dict[str, bool] = {}
        self._kubelet = kubelet
        self._told: object = None
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Until cancelled, or until all of it has ended for good."""
        self.containers = await self._kubelet.made(self)
        self.ready = dict.fromkeys(self.containers, False)
        loop = asyncio.get_running_loop()
        specs = {each["name"]: each for each in self.spec["containers"]}
        self._tasks = [loop.create_task(self._keep(specs[name], each)) for name, each in self.containers.items()]
        self._tasks += [loop.create_task(self._probe(specs[name])) for name in self.containers]
        keeping = self._tasks[: len(self.containers)]
        try:
            while not all(task.done() for task in keeping):
                await self._tell("Running")
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(POLL_S)
            await self._tell("Succeeded")
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, spec: Object, container: Container) -> None:
        while True:
            container.knows(self._kubelet.hosts(self))
            await container.start()
            code = await container.ended()
            self.ready[spec["name"]] = False
            if code == 0 and self.spec.get("restartPolicy", "Always") != "Always":
                return
            await asyncio.sleep(RESTART_S)

    async def _probe(self, spec: Object) -> None:
        name = spec["name"]
        probe = spec.get("readinessProbe")
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=3)) as session:
            while probe is not None:
                get = probe["httpGet"]
                try:
                    async with session.get(f"http://{self.ip}:{get['port']}{get['path']}") as answer:
                        self.ready[name] = answer.status < 400
                except (aiohttp.ClientError, TimeoutError, OSError):
                    self.ready[name] = False
                await asyncio.sleep(POLL_S)
        self.ready[name] = True

    async def _tell(self, phase: str) -> None:
        ready = all(self.ready.values()) and phase == "Running"
        status = self._kubelet.status(self, phase, ready)
        if status != self._told:
            self._told = status
            await self._kubelet.tell(self.namespace, self.name, status)

    def seen(self, found: Object) -> None:
        """What the API server says of it: where somebody else wrote that, it is said again.

        The controller of nodes does, when a busy machine lets a heartbeat come late.
        """
        told = self._told
        if isinstance(told, dict) and _conditions(told) != _conditions(found.get("status") or {}):
            self._told = None

    async def stop(self, grace_s: float) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(each.stop(grace_s) for each in self.containers.values()))


def _conditions(status: Object) -> Mapping[str, str]:
    return {each["type"]: each["status"] for each in status.get("conditions") or () if each["type"] in READY}


KUBELET = User("system:node:node-0", ("system:nodes", "system:masters"))
"""The account that writes the status of pods: the policies know by name who may."""


class Kubelet:
    """`async with Kubelet(plane, folder, images=...) as kubelet`: the nodes are ready.

    ``images``: {image: what it makes of the command of a container}.
    """

    def __init__(self, plane: ControlPlane, folder: Path, *, images: Mapping[str, Program], nodes: int = 4) -> None:
        self.kube = KubeClient(plane.url, token=KUBELET.token, ca_file=plane.ca_file)
        self.pods: dict[str, Pod] = {}
        """{uid: pod} of what runs here"""
        self._plane = plane
        self._folder = folder
        self._images = images
        self._nodes = [f"node-{index}" for index in range(nodes)]
        block = random.SystemRandom().randrange(1 << 16) if not os.environ.get("MUSTER_TEST_SEED") else 4242
        self._block = f"127.{128 + (block >> 9)}.{block & 0xFF}"
        self._given: dict[str, str] = {}
        """{namespace/name: address}: a pod of a StatefulSet has it again"""
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ended: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Kubelet":
        await self.kube.__aenter__()
        try:
            for name in self._nodes:
                await self.kube.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
            await self._beat()
        except BaseException:
            await self.kube.__aexit__(None, None, None)
            raise
        self._task = asyncio.get_running_loop().create_task(self._run())
        return self

    async def __aexit__(self, kind: object, err: BaseException | None, trace: object) -> None:
        assert self._task is not None
        if err is not None:
            err.add_note(self.account())
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        await asyncio.gather(*(pod.stop(5.0) for pod in self.pods.values()), return_exceptions=True)
        await self.kube.__aexit__(None, None, None)

    def guard(self) -> None:
        """Raises what has ended it, or one of its pods."""
        assert self._task is not None
        still_running(self._task)

    def account(self) -> str:
        """The last words of everything that runs."""
        lines = []
        for pod in self.pods.values():
            for name, container in pod.containers.items():
                said = container.said().splitlines()[-4:]
                lines += [f"{pod.name}/{name} ready {pod.ready.get(name)} ends {container.ends}", *said]
        return "\n".join(lines)

    def of(self, prefix: str) -> list[Pod]:
        """The pods whose names begin so."""
        return [pod for pod in self.pods.values() if pod.name.startswith(prefix)]

    def kill(self, pod: Pod, container: str) -> None:
        """As the kernel does that runs out of memory."""
        pod.containers[container].signal(signal.SIGKILL)

    # --- what the API server is told --------------------------------------------------------------------------------

    async def _beat(self) -> None:
        for name in self._nodes:
            condition = {"type": "Ready", "status": "True", "reason": "Kubelet", "message": ""}
            known = await self.kube.get("v1", "Node", name)
            status = {"capacity": NODE, "allocatable": NODE, "conditions": [condition]}
            was = known.get("status", {}).get("conditions") or []
            condition["lastHeartbeatTime"] = f"2020-01-01T00:00:{len(was):02}Z"
            await self.kube.patch("v1", "Node", name, patch={"status": status}, subresource="status")

    def status(self, pod: Pod, phase: str, ready: bool) -> Object:
        yes = {True: "True", False: "False"}
        kinds = {"Initialized": True, "PodScheduled": True, "ContainersReady": ready, "Ready": ready}
        state: Callable[[Container], Object] = lambda each: (  # noqa: E731
            {"running": {}} if phase == "Running" else {"terminated": {"exitCode": each.ends[-1] if each.ends else 0}}
        )
        containers = [
            {
                "name": name,
                "image": "",
                "imageID": "",
                "ready": pod.ready.get(name, False) and phase == "Running",
                "restartCount": len(each.ends),
                "state": state(each),
            }
            for name, each in pod.containers.items()
        ]
        return {
            "phase": phase,
            "podIP": pod.ip,
            "podIPs": [{"ip": pod.ip}],
            "conditions": [{"type": kind, "status": yes[is_so]} for kind, is_so in kinds.items()],
            "containerStatuses": containers,
        }

    async def tell(self, namespace: str, name: str, status: Object) -> None:
        with contextlib.suppress(ApiError):  # It may be gone.
            await self.kube.patch("v1", "Pod", name, namespace, patch={"status": status}, subresource="status")

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        beat = loop.time() + HEARTBEAT_S
        while True:
            found = await self.kube.list_objects("v1", "Pod")
            for pod in found:
                await self._look_at(pod)
            for uid, task in [*self._running.items()]:
                if task.done():
                    task.result()
                    del self._running[uid]
                    self._ended.add(uid)
            if loop.time() > beat:
                beat = loop.time() + HEARTBEAT_S
                await self._beat()
            await asyncio.sleep(POLL_S)

    async def _look_at(self, found: Object) -> None:
        meta, spec, phase = found["metadata"], found["spec"], found.get("status", {}).get("phase", "Pending")
        uid = meta["uid"]
        if not spec.get("nodeName"):
            return
        if meta.get("deletionTimestamp"):
            if uid not in self._ended:
                self._ended.add(uid)
                asyncio.get_running_loop().create_task(self._remove(found))
        elif spec["containers"][0]["image"] in self._images:
            if uid in self.pods:
                self.pods[uid].seen(found)
            else:
                pod = self.pods[uid] = Pod(self, found, self._address(meta))
                self._running[uid] = asyncio.get_running_loop().create_task(pod.run())
                for other in self.pods.values():
                    for container in other.containers.values():
                        container.knows(self.hosts(other))
        elif phase == "Pending":
            conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "ContainersReady", "Ready")]
            await self.tell(meta["namespace"], meta["name"], {"phase": "Running", "conditions": conditions})
        elif phase == "Running" and (meta.get("annotations") or {}).get(RUN_FOR) == "0s":
            await self.tell(meta["namespace"], meta["name"], {"phase": "Succeeded"})

    async def _remove(self, found: Object) -> None:
        meta = found["metadata"]
        pod, task = self.pods.get(meta["uid"]), self._running.pop(meta["uid"], None)
        if pod is not None:
            await pod.stop(float(meta.get("deletionGracePeriodSeconds", 30)))
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self.pods.pop(meta["uid"], None)
        with contextlib.suppress(ApiError):
            await self.kube.delete("v1", "Pod", meta["name"], meta["namespace"], uid=meta["uid"], grace_s=0)

    # --- what a container is given ----------------------------------------------------------------------------------

    def _address(self, meta: Object) -> str:
        """Of its own; a pod of the same name has the same one."""
        key = f"{meta['namespace']}/{meta['name']}"
        if key not in self._given:
            self._given[key] = f"{self._block}.{len(self._given) + 1}"
        return self._given[key]

    def hosts(self, asking: Pod) -> dict[str, list[str]]:
        """What DNS says of headless Service nats: its pods, ready or not."""
        found: dict[str, list[str]] = {asking.name: [asking.ip]}
        for pod in self.of("nats-"):
            found[f"{pod.name}.nats"] = [pod.ip]
            for name in ("nats", f"nats.{pod.namespace}.svc"):
                found.setdefault(name, []).append(pod.ip)
        return found

    async def made(self, pod: Pod) -> dict[str, Container]:
        """Its containers, with their files in place. Raises ApiError when something they name is not there."""
        volumes = {each["name"]: each for each in pod.spec.get("volumes") or ()}
        account = await self._account(pod)
        found = {}
        for spec in pod.spec["containers"]:
            files, disks = dict(account), dict[str, Path]()
            for mount in spec.get("volumeMounts") or ():
                volume = volumes[mount["name"]]
                if "persistentVolumeClaim" in volume:
                    disks[mount["mountPath"]] = self._folder / "disks" / volume["persistentVolumeClaim"]["claimName"]
                for name, content in (await self._content(pod.namespace, volume)).items():
                    files[f"{mount['mountPath']}/{name}"] = content
            place = self._folder / "pods" / pod.uid / spec["name"]
            place.mkdir(parents=True)
            command = self._images[spec["image"]](spec["command"])
            env = self._env(pod, spec)
            found[spec["name"]] = Container(place, command, env, ip=pod.ip, files=files, disks=disks)
        return found

    def _env(self, pod: Pod, spec: Object) -> dict[str, str]:
        host, _, port = self._plane.url.removeprefix("https://").rpartition(":")
        env = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        for each in spec.get("env") or ():
            if "value" in each:
                env[each["name"]] = each["value"]
            else:
                assert each["valueFrom"] == {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}, (
                    f"{each} is not known here"
                )
                env[each["name"]] = pod.name
        return env

    async def _account(self, pod: Pod) -> dict[str, bytes]:
        """The files of its ServiceAccount; none where its token is not mounted."""
        name = pod.spec.get("serviceAccountName") or "default"
        account = await self.kube.get("v1", "ServiceAccount", name, pod.namespace)
        mounts = pod.spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True))
        if not mounts:
            return {}
        path = f"/api/v1/namespaces/{pod.namespace}/serviceaccounts/{name}/token"
        request: dict[str, Any] = {"spec": {"expirationSeconds": 3600}}
        token = (await self.kube.request("POST", path, body=request))["status"]["token"]
        authority = self._plane.ca_file.read_bytes()
        return {
            f"{ACCOUNT}/token": token.encode(),
            f"{ACCOUNT}/ca.crt": authority,
            f"{ACCOUNT}/namespace": pod.namespace.encode(),
        }

    async def _content(self, namespace: str, volume: Object) -> dict[str, bytes]:
        """{file: content} of a volume."""
        if "projected" in volume:
            found: dict[str, bytes] = {}
            for source in volume["projected"]["sources"]:
                found |= await self._content(namespace, source)
            return found
        if "secret" in volume:
            said = volume["secret"]
            data = await self._data("Secret", said.get("secretName") or said["name"], namespace, said)
            read = {name: base64.b64decode(text) for name, text in data.items()}
        elif "configMap" in volume:
            said = volume["configMap"]
            data = await self._data("ConfigMap", said["name"], namespace, said)
            read = {name: text.encode() for name, text in data.items()}
        else:
            return {}
        kept = [each for each in said.get("items") or () if each["key"] in read or not said.get("optional")]
        return {each["path"]: read[each["key"]] for each in kept} if said.get("items") else read

    async def _data(self, kind: str, name: str, namespace: str, source: Object) -> dict[str, str]:
        """What a volume names. The real one waits until it is there; an optional volume without it is empty."""
        while (found := await self.kube.find("v1", kind, name, namespace)) is None and not source.get("optional"):
            await asyncio.sleep(POLL_S)
        return (found or {}).get("data") or {}
