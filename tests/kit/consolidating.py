"""Fragmented nodes under KAI queues on a simulated cluster: running work is moved while people and machines do their
worst to it.

What counts is the API server's own truth: which pods are on which node, and which jobs run. Everything is drawn from
one seed: jobs of every size and priority, shares of GPUs, gangs; people delete, hold, edit and relabel them on their
way; nodes are cordoned, lost and added; PodDisruptionBudgets come and go; some pods do not stop.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from kit.disorder import Disorder, DisorderedCell
from kit.elastic import in_queue, kai_queue
from kit.proof import proven
from kit.story import rayjob
from muster.core.objects.gpushares import RESERVATIONS
from muster.core.objects.meta import HOLD
from muster.events.base import Event
from muster.events.decisions import EvictionOrdered
from muster.events.system import PlacementChosen
from muster.fakecluster.apiserver.store import StoredChange
from muster.fakecluster.deviceplugin import DevicePlugin
from muster.fakecluster.kuberay import OperatorSettings
from muster.fakecluster.world import SimCluster, node
from muster.model import api
from muster.model.api import ApiResource
from muster.model.resources import parse_quantity

Object = dict[str, Any]
QUEUES = ("team-a", "team-b", "team-c")
CPU = 8
GPUS = 2
SIZE = {"cpu": str(CPU), "memory": "64Gi", "nvidia.com/gpu": str(GPUS)}
STUCK = "kit.muster.dev/stuck"
"""Finalizer of a pod that does not go."""
HOUR_MS = 3_600_000
OVER = ("Succeeded", "Failed")


class Consolidating:
    """One such cluster; ``moves``: how many jobs one plan may move."""

    def __init__(
        self,
        seed: int = 0,
        disorder: Disorder | None = None,
        *,
        nodes: int = 4,
        moves: int = 16,
        queues: Sequence[Object] = (),
    ) -> None:
        self.rng = Random(f"consolidating {seed}")
        names = [f"n{index}" for index in range(nodes)]
        self.cluster = SimCluster(
            dict.fromkeys(names, SIZE),
            seed=seed,
            kuberay=OperatorSettings(batch_scheduler="kai-scheduler", submitter_pods=False),
            others=(DevicePlugin(),),
        )
        placement = PlacementChosen(mode="pack", moves=moves)
        self.cell = DisorderedCell(self.cluster, seed=seed, disorder=disorder, placement=placement)
        self.cell.max_rounds = 1_000
        self.came = 0
        self.nodes = nodes
        self.over: list[str] = []
        """What was on a node at a moment and is more than it has."""
        self._on: dict[str, tuple[str, Object]] = {}
        self.cluster.server.subscribe(self._heard, api.PODS)
        for each in queues or [kai_queue(name, CPU) for name in QUEUES]:
            self.call("POST", api.KAI_QUEUES, body=each)
        self.cell.advance(5_000)

    # --- the API server -----------------------------------------------------------------------------------------

    def call(
        self, method: str, resource: ApiResource, namespace: str = "", name: str = "", body: Any = None, kind: str = ""
    ) -> Any:
        encoded = None if body is None else json.dumps(body).encode()
        path = resource.path(namespace, name)
        content = kind or ("application/merge-patch+json" if method == "PATCH" else "application/json")
        answer = self.cluster.server.handle(method, path, body=encoded, content_type=content)
        assert answer.ok, (method, path, answer.body)
        return json.loads(answer.body)

    def _heard(self, change: StoredChange) -> None:
        """No node ever has more pods on it than it has room for."""
        pod = change.object
        if pod["metadata"]["namespace"] != "ns":
            return
        uid, where = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        over = (pod.get("status") or {}).get("phase") in OVER
        if change.type == "DELETED" or over or not where:
            self._on.pop(uid, None)
            return
        if uid in self._on:
            return
        self._on[uid] = (where, pod)
        taken: Counter[str] = Counter()
        for at, each in self._on.values():
            if at == where:
                for container in each["spec"]["containers"]:
                    asked = {**(container.get("resources") or {}).get("limits", {})}
                    asked |= (container.get("resources") or {}).get("requests", {})
                    taken.update({name: parse_quantity(text, name) for name, text in asked.items()})
        for name, text in SIZE.items():
            if taken[name] > parse_quantity(text, name):
                self.over.append(f"{where}: {name} {taken[name]} at {change.version}")

    # --- what there is ------------------------------------------------------------------------------------------

    def jobs(self) -> dict[str, Object]:
        return {each["metadata"]["name"]: each for each in self.call("GET", api.RAYJOBS)["items"]}

    def live(self) -> list[str]:
        return [
            name
            for name, job in self.jobs().items()
            if (job.get("status") or {}).get("jobDeploymentStatus") not in ("Complete", "Failed")
        ]

    def pods(self, job: str = "") -> list[Object]:
        found = self.call("GET", api.PODS, "ns")["items"]
        return [
            pod for pod in found if pod["metadata"]["labels"]["ray.io/cluster"].startswith(f"{job}-" if job else "")
        ]

    def nodes_of(self, job: str) -> list[str]:
        """Of its pods that run."""
        return sorted(
            pod["spec"].get("nodeName") or "" for pod in self.pods(job) if pod["status"]["phase"] == "Running"
        )

    def running(self, *names: str) -> bool:
        return all(self.nodes_of(name) and "" not in self.nodes_of(name) for name in names)

    def told(self, *kinds: type[Event]) -> list[Any]:
        return [event for stored in self.cell.log for event in stored.commit.events if isinstance(event, kinds)]

    @staticmethod
    def orders() -> tuple[type[Event], ...]:
        """Decisions by which others leave for a job."""
        return (EvictionOrdered,)

    def moved(self) -> list[tuple[str, str]]:
        """(job, for whom), in order."""
        orders = [each for each in self.told(EvictionOrdered) if each.kind == "move"]
        return [(victim.ref.name, each.ref.name) for each in orders for victim in each.victims]

    # --- what people do -----------------------------------------------------------------------------------------

    def submit(
        self,
        name: str,
        cpu: int | str,
        queue: str = "team-a",
        *,
        count: int = 1,
        priority: str = "train",
        share: str = "",
        gpus: int = 0,
        runtime: str = "99h",
        wait_ms: int = 10_000,
    ) -> None:
        job = rayjob(
            name, "ns", cpu=str(cpu), memory="1Gi", replicas=count - 1, runtime=runtime, submissionMode="HTTPMode"
        )
        cluster = job["spec"]["rayClusterSpec"]
        templates = [cluster["headGroupSpec"]["template"], *(g["template"] for g in cluster["workerGroupSpecs"])]
        for each in templates:
            if share:
                each["metadata"] = {"annotations": {"gpu-fraction": share}}
            for part in ("limits", "requests") if gpus else ():
                each["spec"]["containers"][0]["resources"][part]["nvidia.com/gpu"] = str(gpus)
        self.call("POST", api.RAYJOBS, "ns", body=in_queue(job, queue, priority))
        self.cell.advance(wait_ms)

    def patch(self, name: str, patch: Object) -> None:
        self.call("PATCH", api.RAYJOBS, "ns", name, patch)

    def delete(self, name: str) -> None:
        self.call("DELETE", api.RAYJOBS, "ns", name)

    def cordon(self, name: str, *, closed: bool) -> None:
        self.call("PATCH", api.NODES, "", name, {"spec": {"unschedulable": closed}})

    def lose(self, name: str) -> None:
        """A node is gone, and after a while its pods are deleted."""
        self.call("DELETE", api.NODES, "", name)
        for pod in self.pods():
            if pod["spec"].get("nodeName") == name:
                path = api.PODS.path("ns", pod["metadata"]["name"])
                self.cluster.server.handle("DELETE", path, query={"gracePeriodSeconds": "0"})

    def budget(self, job: str, allowed: int) -> None:
        """A PodDisruptionBudget over the pods of a job that lets so many of them go."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": f"keep-{job}", "namespace": "ns"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"ray.io/cluster": self.cluster_of(job)}}},
        }
        count = len(self.pods(job))
        status = {"disruptionsAllowed": allowed, "desiredHealthy": count - allowed, "currentHealthy": count}
        status |= {"expectedPods": count}
        self.call("POST", api.DISRUPTION_BUDGETS, "ns", body=body | {"status": status})

    def cluster_of(self, job: str) -> str:
        return str(self.pods(job)[0]["metadata"]["labels"]["ray.io/cluster"])

    # --- chance -------------------------------------------------------------------------------------------------

    def some_job(self) -> None:
        rng = self.rng
        self.came += 1
        how: dict[str, Any] = {"count": rng.choice((1, 1, 1, 2, 3))}
        match rng.randrange(6):
            case 0:
                how |= {"share": rng.choice(("0.5", "0.3", "0.75"))}
            case 1:
                how |= {"gpus": rng.choice((1, 2))}
            case _:
                pass
        self.submit(
            f"j{self.came}",
            rng.choice((1, 2, 3, 3, 4, 5, 7, 8)),
            rng.choice(QUEUES),
            priority=rng.choice(("train", "train", "train", "build-preemptible", "build", "inference")),
            runtime=rng.choice(("5m", "30m", "5h", "99h", "99h")),
            wait_ms=rng.choice((0, 1_000, 10_000)),
            **how,
        )

    def some_act(self) -> None:
        rng, live = self.rng, self.live()
        going = [victim for victim, _ in self.moved()[-4:] if victim in live]
        name = rng.choice(going if going and rng.random() < 0.5 else live) if live else ""
        what = rng.randrange(12)
        if what < 4 and name:
            self._to_job(name, what)
        elif what == 4 and name and self.pods(name):
            pod = rng.choice(self.pods(name))["metadata"]
            if "deletionTimestamp" not in pod:  # One that goes takes no finalizer.
                self.call("PATCH", api.PODS, "ns", pod["name"], {"metadata": {"finalizers": [STUCK]}})
        elif what == 5 and name and self.pods(name):
            if not any(
                each["metadata"]["name"] == f"keep-{name}" for each in self.call("GET", api.DISRUPTION_BUDGETS)["items"]
            ):
                self.budget(name, 0)
        elif what in (6, 7):
            there = [each["metadata"]["name"] for each in self.call("GET", api.NODES)["items"]]
            where = rng.choice(there)
            if what == 6 and len(there) > 2:
                self.lose(where)
            else:
                self.cordon(where, closed=rng.random() < 0.5)
        elif what == 8:
            self.nodes += 1
            self.cluster.server.objects.create(api.NODES, "", node(f"n{self.nodes}", SIZE, self.cluster.clock.now()))
        elif what == 9:
            self.stick(stuck=False, where="ns")

    def _to_job(self, name: str, what: int) -> None:
        rng = self.rng
        if what == 0:
            self.delete(name)
        elif what == 1:
            held = HOLD in (self.jobs()[name]["metadata"].get("annotations") or {})
            self.patch(name, {"metadata": {"annotations": {HOLD: None if held else "true"}}})
        elif what == 2:
            self.patch(name, {"metadata": {"labels": {"kai.scheduler/queue": rng.choice(QUEUES)}}})
        elif self.jobs()[name]["spec"]["suspend"]:
            group = self.jobs()[name]["spec"]["rayClusterSpec"]
            for part in ("limits", "requests"):
                group["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"][part]["cpu"] = rng.choice(
                    "1234"
                )
            self.patch(name, {"spec": {"rayClusterSpec": group}})

    def stick(self, *, stuck: bool, where: str = RESERVATIONS) -> None:
        """Pods of a namespace do not go, or do again; of that of the pods that keep GPUs unless said."""
        for pod in self.call("GET", api.PODS, where)["items"]:
            patch = {"metadata": {"finalizers": [STUCK] if stuck else None}}
            self.call("PATCH", api.PODS, where, pod["metadata"]["name"], patch)

    def play(self, steps: int = 60) -> None:
        rng = self.rng
        for _ in range(steps):
            if rng.random() < 0.45 and len(self.live()) < 14:
                self.some_job()
            elif rng.random() < 0.6:
                self.some_act()
            self.cell.advance(rng.choice((0, 500, 1_000, 1_500, 3_000, 60_000, 600_000, HOUR_MS // 2)))

    def peace(self) -> None:
        """Nothing goes wrong any more, and hours go by."""
        self.cell.heal()
        self.stick(stuck=False, where="ns")
        for each in self.call("GET", api.DISRUPTION_BUDGETS)["items"]:
            self.call("DELETE", api.DISRUPTION_BUDGETS, "ns", each["metadata"]["name"])
        for each in self.call("GET", api.NODES)["items"]:
            self.cordon(each["metadata"]["name"], closed=False)
        for name in self.live():
            self.patch(name, {"metadata": {"annotations": {HOLD: None}}})
        self.cell.advance(4 * HOUR_MS)

    # --- what must hold -----------------------------------------------------------------------------------------

    def sound(self) -> None:
        assert not self.over, self.over[0]
        report = proven(self.cell.log, but="I11")
        assert report.checks["I3"]

    def at_rest(self) -> None:
        """Nothing is kept for a move any more, and each job runs as a whole or waits with a reason."""
        admitter, accountant = self.cell.seats["gang_admitter"].state, self.cell.seats["quota_accountant"].state
        now = self.cluster.clock.now()
        assert not [uid for uid, each in admitter.orders.items() if each.until > now]
        assert not accountant.ledger.claims.going, accountant.ledger.claims.going
        for name in self.live():
            job = self.jobs()[name]
            known = admitter.ledger.owned.get(job["metadata"]["uid"], {})
            there = {pod["metadata"]["uid"] for pod in self.pods(name) if pod["spec"].get("nodeName")}
            assert known.keys() == there, f"{name} has {there} on the nodes, and is known to have {known.keys()}"
            if job["spec"]["suspend"]:
                assert not self.pods(name), name
            else:
                lost = not any(self.nodes_of(name))  # With its nodes; its pods wait for others.
                assert lost or self.running(name), f"{name} runs in part"

    def tries(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for each in self.told(EvictionOrdered):
            found[each.kind] += 1
        return found
