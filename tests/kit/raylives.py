"""Lives of Ray clusters in which everything goes wrong at once, and what holds of every write meanwhile.

RayClusters, RayJobs and RayServices share two queues that owe each other; a controller applies their manifests again
every few seconds; heads, operators, autoscalers, the API server and the bridge fail at any time. What policy
``muster-jobs`` refuses is refused here too.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from kit import jobs
from kit.disorder import Disorder
from kit.elastic import ElasticPlay, in_queue, kai_queue, ray_spec, raycluster, rayjob, tree
from kit.rayjudged import LivesPlay, named
from kit.rayowner import RayOwner
from kit.rayscaler import RayScaler
from muster.events.base import Event
from muster.events.raydemand import RayDemandObserved
from muster.model import api

Object = dict[str, Any]
IPPR = "ray.io/ippr"
NAMES = ("auto", "beta", "gamma")
NAMESPACES = ("ns", "other")
NODES = {f"node-{index}": {"cpu": "8", "memory": "64Gi"} for index in range(2)}
ROOMY = {f"node-{index}": {"cpu": "64", "memory": "256Gi"} for index in range(4)}


class RayLife(RayOwner):
    """Three clusters, jobs and a service in two queues of 12 cores; ``step`` does something to one of them."""

    def __init__(self, seed: int, *, queues: str = "tree", wild: bool = False) -> None:
        """``queues``: tree, or kai. ``wild``: with crashes, late decisions and lost answers."""
        self.rng = Random(f"lives-{seed}")
        self.kai = queues == "kai"
        disorder = Disorder(late=0.1, crash=0.02, unseen=0.1, repeat=0.1, lost_answer=0.1) if wild else None
        given: dict[str, Any] = {"seed": seed, "disorder": disorder, "nodes": NODES if self.kai else ROOMY}
        if self.kai:
            self.play = LivesPlay(queues=[kai_queue("a", 5), kai_queue("b", 5)], **given)
        else:
            self.play = LivesPlay(("ns", "5", "12"), ("other", "5", "12"), total="12", **given)
        self.manifests: dict[str, Object] = {}
        self.count = 0
        self.done: list[str] = []
        self.calm = Disorder()
        self.until: dict[str, int] = {}
        """What is broken -> the step at which it is whole again"""
        self.steps = 0
        self._watch_bridge()
        for _ in range(2):
            self.create()

    def _watch_bridge(self) -> None:
        plain, cell = self.play.cell.step, self.play.cell

        def step(key: str) -> list[Event]:
            if key == "autoscaler_bridge" and "bridge" in self.until:
                cell._restart(key)
            return plain(key)

        cell.step = step  # type: ignore[method-assign]

    # --- one thing after the other ----------------------------------------------------------------------------

    OFTEN = ("start", "burst", "burst", "gang", "end", "end", "wait", "fixed", "fixed")
    SELDOM = (
        "create", "delete", "anew", "gitops", "gitops", "apply", "ceiling", "least", "by_hand", "raise_most", "hold",
        "rests", "wake", "large", "large", "sizes", "shrink", "explicit", "rayjob", "rayjob", "rayservice", "upgrade",
        "end_job", "outage", "outage", "operator", "restart_scaler", "stop", "head", "head", "bridge", "bridge",
        "second_reader", "second_reader", "replace_pod", "delete_pod", "quota",
    )  # fmt: skip

    def step(self) -> None:
        self.steps += 1
        for what in [what for what, at in self.until.items() if at <= self.steps]:
            self.mend(what)
        name = self.rng.choice(self.OFTEN if self.rng.random() < 0.6 else self.SELDOM)
        self.done.append(f"{len(self.play.cell.log)} {name}")
        getattr(self, name)()
        self.play.tick(self.rng.choice((0, 1, 1, 2)))

    def mend(self, what: str) -> None:
        del self.until[what]
        if what == "api":
            self.play.away = False
            self.play.cell.disorder = self.calm
        elif what == "operator":
            self.play.cluster.driver.down.clear()

    def any_scaler(self) -> RayScaler | None:
        names = sorted(self.play.scalers)
        return self.play.scalers[self.rng.choice(names)] if names else None

    def led(self, obj: Object, priority: str = "") -> Object:
        """It goes to a queue: by its namespace, or by a label where there are KAI queues."""
        if not self.kai:
            return obj
        queue = "a" if obj["metadata"]["namespace"] == "ns" else "b"
        return in_queue(obj, queue, priority or self.rng.choice(("train", "train", "build-preemptible")))

    # --- what users do ----------------------------------------------------------------------------------------

    def create(self) -> None:
        for name in NAMES:
            known = [each["metadata"]["name"] for each in self.play.clusters()]
            if name not in self.manifests and name not in known:
                self.make(name, self.rng.choice(NAMESPACES))
                return

    def make(self, name: str, namespace: str) -> None:
        rng = self.rng
        least = rng.choice((0, 0, 1, 2))
        hosts = rng.choice((1, 1, 1, 2, 3))
        obj = raycluster(
            name,
            namespace,
            minReplicas=least,
            replicas=least,
            maxReplicas=max(rng.choice((2, 5, 10)), least),
            numOfHosts=hosts,
        )
        idle, version = rng.choice((10, 20, 60)), rng.choice(("v1", "v2"))
        obj["spec"]["autoscalerOptions"] = {"version": version}
        # KubeRay takes a group's own time with the second version alone.
        timed = obj["spec"]["workerGroupSpecs"][0] if version == "v2" else obj["spec"]["autoscalerOptions"]
        timed["idleTimeoutSeconds"] = idle
        if hosts == 1 and rng.random() < 0.4:
            obj["metadata"]["annotations"] = {IPPR: self.ippr()}
        if rng.random() < 0.15:
            obj["metadata"].setdefault("annotations", {})["muster.dev/drive-replicas"] = "true"
            obj["spec"]["enableInTreeAutoscaling"] = False
        self.manifests[name] = self.led(obj)
        self.play.create_raw(obj)
        self.play.tick(1)
        if name in self.play.scalers:
            scaler = self.play.scalers[name]
            scaler.idle_ms, scaler.version = idle * 1000, obj["spec"]["autoscalerOptions"]["version"]

    def ippr(self) -> str:
        cpu = self.rng.choice((2, 3))
        return json.dumps({"groups": {"small": {"max-cpu": cpu, "max-memory": f"{cpu}Gi", "resize-timeout": 60}}})

    def is_driven(self, name: str) -> bool:
        return not self.manifests[name]["spec"]["enableInTreeAutoscaling"]

    def start(self) -> None:
        if scaler := self.any_scaler():
            self.count += 1
            scaler.start(f"actor-{self.count}")

    def burst(self) -> None:
        """As much work as there is room for in its queue, and more."""
        if scaler := self.any_scaler():
            for _ in range(self.rng.choice((4, 8))):
                self.count += 1
                scaler.start(f"actor-{self.count}")

    def gang(self) -> None:
        if scaler := self.any_scaler():
            self.count += 1
            for index in range(self.rng.choice((2, 3))):
                scaler.start(f"bundle-{self.count}-{index}", gang=f"pg-{self.count}")

    def large(self) -> None:
        if scaler := self.any_scaler():
            self.count += 1
            scaler.start(f"large-{self.count}", cpu=self.rng.choice((2, 3)))

    def end(self) -> None:
        if (scaler := self.any_scaler()) and scaler.actors:
            for name in self.rng.sample(sorted(scaler.actors), min(len(scaler.actors), self.rng.choice((1, 1, 4)))):
                scaler.end(name)

    def explicit(self) -> None:
        if scaler := self.any_scaler():
            scaler.explicit = self.rng.choice((0, 0, 2, 4))

    def wait(self) -> None:
        self.play.tick(self.rng.choice((1, 4)))

    def fixed(self) -> None:
        """A cluster of a fixed size comes, or one goes: its queue may be owed what others borrow."""
        known = [each["metadata"] for each in self.play.clusters() if each["metadata"]["name"].startswith("fixed")]
        if len(known) > 1 or (known and self.rng.random() < 0.5):
            meta = self.rng.choice(known)
            self.play.call("DELETE", api.RAYCLUSTERS, meta["namespace"], meta["name"])
            return
        self.count += 1
        size = self.rng.choice((1, 2, 4))
        made = raycluster(
            f"fixed-{self.count}", self.rng.choice(NAMESPACES), replicas=size, minReplicas=size, maxReplicas=size
        )
        made["spec"]["enableInTreeAutoscaling"] = False
        self.play.create_raw(self.led(made))

    def delete(self) -> None:
        if name := self.one():
            obj = self.manifests.pop(name)
            self.play.reapplied.pop(name, None)
            self.play.call("DELETE", api.RAYCLUSTERS, obj["metadata"]["namespace"], name)

    def anew(self) -> None:
        """Deleted, and made anew under the same name before anybody has looked."""
        if name := self.one():
            namespace = self.manifests[name]["metadata"]["namespace"]
            self.delete()
            if name in self.manifests:
                return
            gone = name not in [each["metadata"]["name"] for each in self.play.clusters()]
            if gone:
                self.play.scalers.pop(name, None)
                self.make(name, namespace)

    def gitops(self) -> None:
        """A controller applies the manifest again and again from now on, or not any more."""
        if (name := self.one()) and self.play.reapplied.pop(name, None) is None:
            self.play.reapplied[name] = self.manifests[name]

    def ceiling(self) -> None:
        if name := self.one():
            group = self.manifests[name]["spec"]["workerGroupSpecs"][0]
            group["maxReplicas"] = max(self.rng.choice((1, 3, 6, 12)), group["minReplicas"], group["replicas"])
            self.play.apply(self.manifests[name])

    def raise_most(self) -> None:
        if (name := self.one()) and not self.play.away:
            value = self.rng.choice((20, 50, 2_000))
            ops = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/maxReplicas", "value": value}]
            ElasticPlay.edit(self.play, ops, name)
            self.play.cell.advance(500)

    def hold(self) -> None:
        if name := self.one():
            self.play.note(name, "muster.dev/hold", self.rng.choice(("true", None)))

    def rests(self) -> None:
        if (name := self.one()) and not self.is_driven(name):
            options = self.rng.choice(({"timeoutSeconds": 20, "policy": "Suspend"}, None))
            self.play.merge(name, {"spec": {"idleTerminationOptions": options}})
            self.play.scalers[name].actors.clear()
            self.play.tick(self.rng.choice((1, 5)))

    def wake(self) -> None:
        for each in self.play.clusters():
            if each["spec"].get("idleSuspend"):
                self.play.merge(each["metadata"]["name"], {"spec": {"idleSuspend": False, "suspend": True}})

    def sizes(self) -> None:
        if name := self.one():
            notes = self.play.raycluster(name)["metadata"].get("annotations") or {}
            hosts = self.manifests[name]["spec"]["workerGroupSpecs"][0]["numOfHosts"]
            text = self.ippr() if self.rng.random() < 0.7 and hosts == 1 else None
            if text is None or not notes.get("muster.dev/resize"):
                self.play.note(name, IPPR, text)

    def shrink(self) -> None:
        if (name := self.one()) and (pod := self.idle_pod(name)):
            assert self.play.resize(name, pod["metadata"]["name"], "1", "1Gi")

    def idle_pod(self, name: str) -> Object | None:
        busy = {actor.on for actor in self.play.scalers[name].actors.values()}
        return next(
            (
                pod
                for pod in self.play.pods(name)
                if pod["metadata"]["name"] not in busy and not pod["metadata"].get("deletionTimestamp")
            ),
            None,
        )

    def quota(self) -> None:
        if self.kai:
            return
        most = self.rng.choice(("4", "8", "12"))
        found = self.play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
        root = tree(("ns", "3", most), ("other", "3", "12"))["spec"]["root"]
        found["spec"]["root"]["children"] = root["children"]
        self.play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", found)

    # --- jobs and services --------------------------------------------------------------------------------------

    def rayjob(self) -> None:
        if len(self.play.call("GET", api.RAYJOBS)["items"]) > 1:
            return
        self.count += 1
        obj = rayjob(f"job{self.count}x", self.rng.choice(NAMESPACES), maxReplicas=self.rng.choice((3, 6)))
        if self.rng.random() < 0.5:
            obj["metadata"]["annotations"]["sim.muster.dev/runtime"] = "90s"
        self.play.create_raw(self.led(obj))

    def rayservice(self) -> None:
        if self.play.call("GET", api.RAYSERVICES)["items"]:
            return
        self.count += 1
        obj = jobs.rayservice(f"svc{self.count}x", self.rng.choice(NAMESPACES))
        obj["spec"]["rayClusterConfig"] = ray_spec(maxReplicas=4)
        self.play.call("POST", api.RAYSERVICES, obj["metadata"]["namespace"], body=self.led(obj))

    def upgrade(self) -> None:
        for found in self.play.call("GET", api.RAYSERVICES)["items"]:
            meta = found["metadata"]
            at = "/spec/rayClusterConfig/headGroupSpec/template/spec/containers/0/image"
            ops = [{"op": "replace", "path": at, "value": f"ray:{self.steps}"}]
            kind = "application/json-patch+json"
            self.play.call("PATCH", api.RAYSERVICES, meta["namespace"], meta["name"], ops, kind)

    def end_job(self) -> None:
        found = [(api.RAYJOBS, each) for each in self.play.call("GET", api.RAYJOBS)["items"]]
        found += [(api.RAYSERVICES, each) for each in self.play.call("GET", api.RAYSERVICES)["items"]]
        if found:
            resource, obj = self.rng.choice(found)
            self.play.call("DELETE", resource, obj["metadata"]["namespace"], obj["metadata"]["name"])

    # --- what breaks --------------------------------------------------------------------------------------------

    def outage(self) -> None:
        """The API server takes no patch for half a minute, neither ours nor the autoscalers'."""
        if "api" not in self.until:
            self.until["api"], self.calm = self.steps + 6, self.play.cell.disorder
            self.play.away, self.play.cell.disorder = True, Disorder(outage=1.0)

    def operator(self) -> None:
        """KubeRay is away; what changes meanwhile it sees when it is back."""
        if "operator" not in self.until:
            self.until["operator"] = self.steps + self.rng.choice((3, 8))
            self.play.cluster.driver.down.append(self.play.cluster.operator)

    def bridge(self) -> None:
        """It is started anew at every step for a while, from a snapshot or from the beginning of the log."""
        self.until["bridge"] = self.steps + 3

    def restart_scaler(self) -> None:
        if scaler := self.any_scaler():
            scaler.idle_since.clear()
            scaler.leaving.clear()

    def stop(self) -> None:
        if (name := self.one()) and not self.is_driven(name):
            self.play.scalers[name].stopped = not self.play.scalers[name].stopped

    def head(self) -> None:
        """A head is lost: with it all actors, and where nothing is stored outside, all workers."""
        if not self.play.scalers:
            return
        name = self.rng.choice(sorted(self.play.scalers))
        scaler, alone = self.play.scalers[name], self.rng.random() < 0.5
        doomed = self.play.pods(name, "head") + ([] if alone else self.play.pods(name))
        for pod in doomed:
            meta = pod["metadata"]
            path = api.PODS.path(meta["namespace"], meta["name"]) + "/status"
            body, kind = b'{"status": {"phase": "Failed"}}', "application/merge-patch+json"
            self.play.cluster.server.handle("PATCH", path, body=body, content_type=kind)
        scaler.session = f"session-{self.steps}"
        scaler.idle_since.clear()
        scaler.leaving.clear()
        if self.rng.random() < 0.5:
            scaler.actors.clear()

    def second_reader(self) -> None:
        """Another bridge says again what was said a while ago."""
        facts = [
            event
            for stored in self.play.cell.log[-60:]
            for event in stored.commit.events
            if isinstance(event, RayDemandObserved)
        ]
        if facts:
            self.play.cell.append("autoscaler_bridge", "input", self.rng.sample(facts, min(2, len(facts))))

    def delete_pod(self) -> None:
        """Somebody deletes a worker, busy or not."""
        if (name := self.one()) and (found := self.play.pods(name)):
            meta = self.rng.choice(found)["metadata"]
            self.play.call("DELETE", api.PODS, meta["namespace"], meta["name"])

    def replace_pod(self) -> None:
        """A worker goes, and its name is at once that of somebody else's pod."""
        if (name := self.one()) and (found := self.play.pods(name)):
            pod = self.rng.choice(found)
            meta = pod["metadata"]
            if meta["name"] in named(self.play.group(name)) or meta.get("deletionTimestamp"):
                return
            self.play.call("DELETE", api.PODS, meta["namespace"], meta["name"])
            self.play.cell.advance(2_000)
            fresh = {"name": meta["name"], "namespace": meta["namespace"], "labels": {"app": "somebody-else"}}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": fresh, "spec": {"containers": FOREIGN}}
            path = api.PODS.path(meta["namespace"])
            self.play.cluster.server.handle("POST", path, body=json.dumps(body).encode())

    # --- the end --------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """All as it should be, and little to do: autoscalers run, there is room, manifests scale."""
        play = self.play
        for what in list(self.until):
            self.mend(what)
        play.cell.heal()
        play.reapplied.clear()
        for obj in play.clusters():
            name, meta = obj["metadata"]["name"], obj["metadata"]
            if name.startswith("fixed"):
                play.call("DELETE", api.RAYCLUSTERS, meta["namespace"], name)
            elif name in self.manifests:
                rests = {"idleSuspend": False, "suspend": True} if obj["spec"].get("idleSuspend") else {}
                notes = {"metadata": {"annotations": {"muster.dev/hold": None, IPPR: None}}}
                play.merge(name, {**notes, "spec": {"idleTerminationOptions": None, **rests}})
        for resource in (api.RAYJOBS, api.RAYSERVICES):
            for found in play.call("GET", resource)["items"]:
                play.call("DELETE", resource, found["metadata"]["namespace"], found["metadata"]["name"])
        for name, obj in self.manifests.items():
            group = obj["spec"]["workerGroupSpecs"][0]
            play.tick(1)
            stands = play.group(name)  # More than is granted is refused.
            least = min(group["minReplicas"], stands.get("minReplicas", 0), 1)
            group["maxReplicas"], group["minReplicas"], group["replicas"] = 90, least, 0
            play.apply(obj)
            if name in play.scalers:
                scaler = play.scalers[name]
                scaler.stopped, scaler.explicit, scaler.trouble = self.is_driven(name), 0, ""
                scaler.idle_ms = 10_000
                scaler.actors.clear()
                for number in range(2):
                    scaler.start(f"last-{number}")
        if not self.kai:
            found = play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
            root = tree(("ns", "3", "200"), ("other", "3", "200"))["spec"]["root"]
            found["spec"]["root"] = {**root, "min": {"cpu": "400"}, "max": {"cpu": "400"}}
            play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", found)
        play.tick(20)
        for _ in range(100):  # Growth that was not used is not tried again for a while, 160 min at the most.
            if not play.cell.seats["autoscaler_bridge"].state.alarms:
                break
            play.tick(20)
        play.tick(20)


FOREIGN: list[Object] = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m"}}}]
