"""A job that is evicted at a chosen moment of its start, by a claimant whose guarantee it borrows, under a controller
that hears of every change late. The judge looks at nothing but the pods on the nodes and the quota tree as written.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from kit import jobs
from kit.crds import others
from kit.disorder import Disorder, DisorderedCell
from kit.elastic import tree
from muster.core.workloads.registry import KINDS
from muster.events.base import Event
from muster.events.decisions import WorkloadAdopted
from muster.events.effects import EffectApplied
from muster.fakecluster.kuberay import OperatorSettings
from muster.fakecluster.lagging import Lag
from muster.fakecluster.podneeds import OVER, phase
from muster.fakecluster.world import SimCluster
from muster.model import api
from muster.model.resources import parse_quantity
from muster.model.workload import Workload

Obj = dict[str, Any]
NODES = {f"node-{index}": {"cpu": "16", "memory": "64Gi"} for index in range(4)}
LENDER, BORROWER = "text", "video"
"""Namespaces, and names of the leaves that they are at."""
"""Of the kinds that the simulated cluster does not run by itself."""


class NodesJudge:
    """How much the pods on the nodes ask for, from moment to moment, beside the max of each node of the tree."""

    def __init__(self, quota: Obj) -> None:
        """``quota``: the tree, whose leaves name their namespaces."""
        root = quota["spec"]["root"]
        self._limits = [({LENDER, BORROWER}, Decimal(root["max"]["cpu"]))]
        self._limits += [({*leaf["namespaces"]}, Decimal(leaf["max"]["cpu"])) for leaf in root["children"]]
        self.pods: dict[str, tuple[str, Decimal]] = {}
        """uid -> (namespace, cpu) of each pod that has a node and has not ended"""
        self.above: list[str] = []
        self.ran: set[str] = set()
        """Names of pods that have run."""

    def heard(self, kind: str, pod: Obj) -> None:
        """ADDED, MODIFIED or DELETED, as the API server tells it."""
        meta, holds = pod["metadata"], bool(pod["spec"].get("nodeName")) and phase(pod) not in OVER
        if kind == "DELETED" or not holds:
            self.pods.pop(meta["uid"], None)
            return
        if phase(pod) == "Running":
            self.ran.add(meta["name"])
        asks = [each.get("resources", {}).get("requests", {}).get("cpu", "0") for each in pod["spec"]["containers"]]
        cpu = sum((Decimal(parse_quantity(each, "cpu")) / 1000 for each in asks), Decimal(0))
        self.pods[meta["uid"]] = (meta["namespace"], cpu)
        for namespaces, limit in self._limits:
            used = sum(cpu for namespace, cpu in self.pods.values() if namespace in namespaces)
            if used > limit:
                self.above.append(f"{used} of {limit} cpu in {sorted(namespaces)} with {meta['name']}")


class Eviction:
    """``victim`` borrows all of the quota; ``claimant``, of the same kind, is guaranteed all of it.

    ``lag_s``: how late the controller hears of each change. ``since``: from when on: ``always``, or from the ``resume``
    or the ``eviction`` on. ``fresh``: it has not looked at the victim yet when that is resumed.
    """

    def __init__(
        self,
        kind: str,
        lag_s: int = 0,
        since: str = "always",
        *,
        fresh: bool = False,
        disorder: Disorder | None = None,
        seed: int = 0,
    ) -> None:
        self.kind, self.since, self.lag_s = kind, since, lag_s
        self.lag = Lag(lag_s * 1000 if since == "always" else 0)
        self.resource, known = KINDS[kind].resource, jobs.KINDS[kind]
        self.cpu = known.full // 1000 + bool(known.full % 1000)
        operator = jobs.OPERATORS.get(kind)
        definitions = [each for each in others() if operator and each["spec"]["names"]["kind"] in _served_with(kind)]
        self.cluster = SimCluster(
            NODES,
            kuberay=OperatorSettings(submitter_pods=kind == "RayJob" or KINDS[kind].pods_of == ("Job",)),
            others=[operator()] if operator else [],
            definitions=copy.deepcopy(definitions),
            lag=self.lag,
        )
        quota = tree((LENDER, str(self.cpu), str(self.cpu)), (BORROWER, "0", str(self.cpu)), total=str(self.cpu))
        self.judge = NodesJudge(quota)
        self.cluster.server.subscribe(lambda change: self.judge.heard(change.type, change.object), api.PODS)
        self.cell = DisorderedCell(self.cluster, kinds=(kind,), isolate=False, seed=seed, disorder=disorder)
        if fresh:
            self.create(api.QUOTA_TREES, "kube-system", quota)
            self.cell.advance(1_000)
            self.submit("victim", BORROWER)
        else:
            self.submit("victim", BORROWER)
            self.cell.advance(5 * self.lag.ms + 10_000)
            self._slow_from("resume")
            self.create(api.QUOTA_TREES, "kube-system", quota)
        self.until(lambda: bool(self.effects("resume")), 1, "the victim to be resumed")

    def _slow_from(self, what: str) -> None:
        if self.since == what:
            self.lag.ms = self.lag_s * 1000

    def create(self, resource: api.ApiResource, namespace: str, body: Obj) -> None:
        self.cluster.server.objects.create(resource, namespace, body)

    def submit(self, name: str, namespace: str) -> None:
        body = jobs.KINDS[self.kind].make(name, namespace)
        body["metadata"].setdefault("annotations", {})["sim.muster.dev/runtime"] = "99h"
        self.create(self.resource, namespace, body)

    def claim(self) -> None:
        """The owner of the quota wants it."""
        self._slow_from("eviction")
        self.submit("claimant", LENDER)
        self.cell.settle()

    def suspend(self) -> None:
        """Another client suspends the victim."""
        patch = [{"op": "add", "path": KINDS[self.kind].suspend_path, "value": True}]
        self.cluster.server.objects.patch(self.resource, BORROWER, "victim", patch, content_type=api.JSON_PATCH)

    def until(self, condition: Callable[[], bool], limit_s: int, what: str) -> None:
        """Let time pass until something holds."""
        self.cell.settle()
        step_ms = max(100, min(self.lag_s * 100, limit_s * 10))
        for _ in range(limit_s * 1000 // step_ms):
            if condition():
                return
            self.cell.advance(step_ms)
        raise AssertionError(f"{self.kind}, {self.lag_s} s late: waited {limit_s} s for {what}")

    # --- what has happened ------------------------------------------------------------------------------------

    def happened(self, kind: type[Event]) -> list[Any]:
        return [event for stored in self.cell.log for event in stored.commit.events if isinstance(event, kind)]

    def effects(self, action: str, name: str = "victim") -> list[EffectApplied]:
        found = self.happened(EffectApplied)
        return [each for each in found if each.action == action and each.ref.name == name]

    def is_acted_on(self) -> bool:
        """Whether the controller's status says that it has seen the resume."""
        found = self.cluster.server.objects.get(self.resource, BORROWER, "victim")
        workload = KINDS[self.kind].read(json.dumps(found).encode())
        assert isinstance(workload, Workload)
        return not workload.settled

    def has_run(self, name: str) -> bool:
        return any(pod.startswith(name) for pod in self.judge.ran)

    def adoptions(self) -> list[str]:
        return [each.reason for each in self.happened(WorkloadAdopted)]


def _served_with(kind: str) -> tuple[str, ...]:
    """What the operator of a kind has to be able to watch."""
    return tuple(each for each, operator in jobs.OPERATORS.items() if operator is jobs.OPERATORS.get(kind)) or (kind,)
