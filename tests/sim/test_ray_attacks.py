"""Random lives of Ray clusters that scale themselves: edits, deletions, changing quotas, autoscalers that stop, holds,
clusters that stop themselves for idleness, workers that grow in place.

At every position of the log what is granted is within every quota. Afterwards nothing may be left over: what fits is
granted, what nobody uses is given back, what is gone is forgotten, and an idle log gets no commits.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from kit.elastic import CORE, HEAD_CPU, ElasticPlay, raycluster, tree
from kit.raylaws import within_quota
from kit.rayowner import RayOwner
from kit.rayscaler import cpus_of
from muster.model import api

Object = dict[str, Any]
IPPR = "ray.io/ippr"
NAMES = ("auto", "beta", "gamma")
IDLE = {"timeoutSeconds": 20, "policy": "Suspend"}
AWAKE: Object = {"spec": {"idleSuspend": False, "suspend": True}}


def sizes(cpu: int) -> Object:
    return {"groups": {"small": {"max-cpu": cpu, "max-memory": f"{cpu}Gi", "resize-timeout": 60}}}


class Life(RayOwner):
    """Up to three clusters in two queues; ``step`` does something to one of them."""

    def __init__(self, seed: int, *, contended: bool = False) -> None:
        """``contended``: 12 cores in all, so that what one queue borrows another is owed."""
        self.rng = Random(seed)
        leaves = (("ns", "5", "12"), ("other", "5", "12")) if contended else (("ns", "3", "8"), ("other", "3", "8"))
        self.play = ElasticPlay(*leaves, seed=seed, total="12" if contended else "100")
        self.contended, self.jobs = contended, 0
        self.manifests: dict[str, Object] = {}
        self.actors = 0
        self.done: list[str] = []
        self.create()
        self.create()

    def step(self) -> None:
        often = (self.start, self.start, self.gang, self.end, self.end, self.wait)
        seldom = (
            self.create, self.apply, self.ceiling, self.least, self.by_hand, self.scaling, self.delete, self.quota,
            self.explicit, self.stop, self.large, self.large, self.sizes, self.shrink, self.unlimited,
            self.hold, self.hold, self.rests, self.rests, self.wake,
        )  # fmt: skip
        if self.contended:
            often, seldom = (*often, self.job), tuple(each for each in seldom if each != self.quota)
        doing = self.rng.choice(often if self.rng.random() < 0.75 else seldom)
        self.done.append(f"{self.play.cluster.clock.now()} {doing.__name__}")
        doing()
        self.play.tick(self.rng.choice((0, 1, 1, 2)))

    def create(self) -> None:
        for name in NAMES:
            if name not in self.manifests:
                namespace = self.rng.choice(("ns", "other"))
                least = self.rng.choice((0, 0, 1, 2))
                obj = raycluster(
                    name, namespace, minReplicas=least, replicas=least, maxReplicas=self.rng.choice((2, 5, 10))
                )
                if self.rng.random() < 0.5:
                    obj["metadata"]["annotations"] = {IPPR: json.dumps(sizes(self.rng.choice((2, 3))))}
                self.manifests[name] = obj
                if self.rng.random() < 0.25:
                    obj["metadata"].setdefault("annotations", {})["muster.dev/drive-replicas"] = "true"
                    obj["spec"]["enableInTreeAutoscaling"] = False
                elif self.rng.random() < 0.25:  # With a fixed size at first.
                    obj["spec"]["enableInTreeAutoscaling"] = False
                self.play.create(obj)
                self.play.scalers[name].stopped = self.is_driven(name)
                return

    def is_driven(self, name: str) -> bool:
        """Muster writes its ``replicas``: it has no autoscaler."""
        return "muster.dev/drive-replicas" in (self.manifests[name]["metadata"].get("annotations") or {})

    def start(self) -> None:
        if name := self.one():
            self.actors += 1
            self.play.scalers[name].start(f"actor-{self.actors}")

    def large(self) -> None:
        """It fits no worker as it is made."""
        if name := self.one():
            self.actors += 1
            self.play.scalers[name].start(f"large-{self.actors}", cpu=self.rng.choice((2, 3, 4)))

    def sizes(self) -> None:
        """The owner wants workers to grow more, less or not at all; while they may grow, only the last passes."""
        if name := self.one():
            meta = self.play.raycluster(name)["metadata"]
            notes = meta.get("annotations") or {}
            text = json.dumps(sizes(self.rng.choice((2, 4)))) if self.rng.random() < 0.7 else None
            if text is None or not notes.get("muster.dev/resize"):
                self.play.note(name, IPPR, text)

    def shrink(self) -> None:
        """Somebody makes a worker that does nothing as small as it was made."""
        if name := self.one():
            scaler = self.play.scalers[name]
            idle = [pod for pod in self.play.pods(name) if pod["metadata"]["name"] not in scaler.busy]
            if idle and not idle[0]["metadata"].get("deletionTimestamp"):
                assert self.play.resize(name, idle[0]["metadata"]["name"], "1", "1Gi")

    def unlimited(self) -> None:
        """A tenant tries to make a worker as large as can be."""
        if (name := self.one()) and (found := self.play.pods(name)):
            assert not self.play.resize(name, found[0]["metadata"]["name"], "64", "64Gi")

    def gang(self) -> None:
        if name := self.one():
            self.actors += 1
            for index in range(self.rng.choice((2, 3))):
                self.play.scalers[name].start(f"bundle-{self.actors}-{index}", gang=f"pg-{self.actors}")

    def end(self) -> None:
        if (name := self.one()) and self.play.scalers[name].actors:
            self.play.scalers[name].end(self.rng.choice(sorted(self.play.scalers[name].actors)))

    def explicit(self) -> None:
        if name := self.one():
            self.play.scalers[name].explicit = self.rng.choice((0, 0, 2, 4))

    def job(self) -> None:
        """A cluster of a fixed size comes, or one goes: its queue may be owed what others borrow."""
        known = [each["metadata"] for each in self.play.clusters() if each["metadata"]["name"].startswith("fixed")]
        if len(known) > 1 or (known and self.rng.random() < 0.5):
            meta = self.rng.choice(known)
            self.play.call("DELETE", api.RAYCLUSTERS, meta["namespace"], meta["name"])
            return
        self.jobs += 1
        size = self.rng.choice((1, 2, 4))
        made = raycluster(
            f"fixed-{self.jobs}",
            self.rng.choice(("ns", "other")),
            replicas=size,
            minReplicas=size,
            maxReplicas=size,
        )
        made["spec"]["enableInTreeAutoscaling"] = False
        self.play.create_raw(made)

    def stop(self) -> None:
        if (name := self.one()) and not self.is_driven(name):
            self.play.scalers[name].stopped = not self.play.scalers[name].stopped

    def ceiling(self) -> None:
        if name := self.one():
            group = self.manifests[name]["spec"]["workerGroupSpecs"][0]
            group["maxReplicas"] = max(self.rng.choice((1, 3, 6, 12)), group["minReplicas"])
            self.play.apply(self.manifests[name])

    def scaling(self) -> None:
        if (name := self.one()) and not self.is_driven(name):
            spec = self.manifests[name]["spec"]
            spec["enableInTreeAutoscaling"] = not spec["enableInTreeAutoscaling"]
            self.play.apply(self.manifests[name])

    def delete(self) -> None:
        if name := self.one():
            obj = self.manifests.pop(name)
            self.play.scalers.pop(name)
            self.play.call("DELETE", api.RAYCLUSTERS, obj["metadata"]["namespace"], name)

    def quota(self) -> None:
        most = self.rng.choice(("4", "8", "20"))
        found = self.play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
        found["spec"]["root"]["children"] = tree(("ns", "3", most), ("other", "3", "8"))["spec"]["root"]["children"]
        self.play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", found)

    def wait(self) -> None:
        self.play.tick(self.rng.choice((1, 4)))

    def hold(self) -> None:
        """Somebody holds a cluster back, or lets it go: it keeps what it has, and waits once it is suspended."""
        if names := [each["metadata"]["name"] for each in self.play.clusters()]:
            self.play.note(self.rng.choice(names), "muster.dev/hold", self.rng.choice(("true", None)))

    def rests(self) -> None:
        """Its owner stops using it, and has its autoscaler stop it for that, or does not any more."""
        if (name := self.one()) and not self.is_driven(name):
            self.play.merge(name, {"spec": {"idleTerminationOptions": self.rng.choice((IDLE, IDLE, None))}})
            self.play.scalers[name].actors.clear()
            self.play.tick(self.rng.choice((1, 5, 5)))

    def wake(self) -> None:
        """One that stopped itself is wanted again, and asks like any other."""
        resting = [each["metadata"]["name"] for each in self.play.clusters() if each["spec"].get("idleSuspend")]
        if resting:
            self.play.merge(self.rng.choice(resting), AWAKE)

    # --- the end ----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """All as it should be: autoscalers run, there is room, manifests scale."""
        for each in self.play.clusters():
            name, stopped = each["metadata"]["name"], each["spec"].get("idleSuspend")
            notes = {"metadata": {"annotations": {"muster.dev/hold": None}}}
            self.play.merge(
                name, {**notes, "spec": {"idleTerminationOptions": None, **(AWAKE["spec"] if stopped else {})}}
            )
        for name, obj in self.manifests.items():
            self.play.scalers[name].stopped = self.is_driven(name)
            obj["spec"]["enableInTreeAutoscaling"] = not self.is_driven(name)
            obj["spec"]["workerGroupSpecs"][0]["maxReplicas"] = 90
            self.play.apply(obj)
            self.play.note(name, IPPR, json.dumps(sizes(4)))
        for obj in self.play.clusters():
            if obj["metadata"]["name"].startswith("fixed"):
                self.play.call("DELETE", api.RAYCLUSTERS, obj["metadata"]["namespace"], obj["metadata"]["name"])
        found = self.play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
        root = tree(("ns", "3", "200"), ("other", "3", "200"))["spec"]["root"]
        found["spec"]["root"] = {**root, "min": {"cpu": "400"}, "max": {"cpu": "400"}}
        self.play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", found)
        self.play.tick(20)
        alarms = self.play.cell.seats["autoscaler_bridge"].state.alarms
        for _ in range(100):  # Growth that was not used is not tried again for a while, 160 min at the most.
            if not alarms:
                break
            self.play.tick(20)
        assert not alarms, f"alarms that do not end: {alarms}, after {self.done}"
        self.play.tick(20)


@pytest.mark.parametrize("contended", [False, True])
@pytest.mark.parametrize("seed", range(16))
def test_whatever_happens_it_ends_well(seed: int, contended: bool) -> None:
    life = Life(seed, contended=contended)
    for _ in range(80):
        life.step()
    play = life.play
    life.settle()
    for name, scaler in play.scalers.items():
        large = {each for each, actor in scaler.actors.items() if life.is_driven(name) and actor.cpu > 1}
        assert {*scaler.waiting} <= large, f"{name} waits beside free quota: {life.done}"
        assert not play.over(name), (name, life.done)
        scaler.actors.clear()
        scaler.explicit = 0
    play.tick(20)
    for name, obj in life.manifests.items():
        least = obj["spec"]["workerGroupSpecs"][0]["minReplicas"]
        assert len(play.pods(name)) == least, (name, life.done)
        assert play.group(name)["maxReplicas"] == least, (name, life.done)
        # Ray makes no worker smaller again.
        head = 0 if life.is_driven(name) else HEAD_CPU
        assert play.cpu(name) == head + sum(map(cpus_of, play.pods(name))) * CORE, (name, life.done)
        assert play.raycluster(name)["metadata"]["annotations"].get("muster.dev/resize", "") == "", name
    assert within_quota(play.cell.log) > 100
    before = len(play.cell.log)
    play.tick(20)
    assert len(play.cell.log) - before <= 1, "nothing changed, so nothing is written"
    for name, obj in life.manifests.items():
        play.call("DELETE", api.RAYCLUSTERS, obj["metadata"]["namespace"], name)
    play.scalers.clear()
    play.cell.advance(120_000)
    assert not play.cell.seats["quota_accountant"].state.ledger.charges
    assert not play.cell.seats["quota_accountant"].state.growths
    assert not play.cell.seats["quota_accountant"].state.returns
    bridge = play.cell.seats["autoscaler_bridge"].state
    assert not (bridge.reclaims or bridge.chosen)
    preemptor = play.cell.seats["preemptor"].state
    assert not preemptor.charged
    assert not (bridge.clusters or bridge.grants or bridge.heard or bridge.workers or bridge.gates or bridge.growing)
    play.clean()
