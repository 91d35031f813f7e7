"""Trees and jobs with types of GPUs: short words for tests of flavors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kit import facts
from kit.scenes import Scene
from muster.core.objects.meta import FLAVOR_WAIT, FLAVORS
from muster.events.decisions import QuotaReserved
from muster.events.facts import TreeNodeSpec
from muster.model.placing import GPU, PodRules
from muster.model.quota import MACHINES
from muster.model.resources import Vector, add_into, parse_quantity, scaled
from muster.model.workload import PodSet, Workload

KEY = "gpu.type"
PLAIN = {"gpu": GPU, "cpu": "cpu", "memory": "memory", MACHINES: MACHINES}


Pods = int | dict[str, Any] | tuple[str, int, int | dict[str, Any]]
"""(name, number of pods, request of a pod), or the request of the one pod of a set: GPUs, or {cpu, memory, gpu}."""


def vector(request: int | Mapping[str, Any]) -> Vector:
    asked = {"gpu": request} if isinstance(request, int) else request
    return {name: parse_quantity(text, name) for name, text in sorted(texts(asked).items())}


def flavor(name: str, **more: Any) -> dict[str, Any]:
    """A flavor as the annotation of a tree has it: its nodes carry a label with its name."""
    return {"name": name, "nodeLabels": {KEY: name}} | more


def texts(amounts: Mapping[str, Any]) -> dict[str, str]:
    """{resource: text}: ``gpu`` and ``h100`` stand for the GPUs, in all and of a flavor; a key with @ as it is."""
    known = {name: name if "@" in name else PLAIN.get(name, f"{GPU}@{name}") for name in amounts}
    return {known[name]: str(text) for name, text in amounts.items()}


def leaf(name: str, least: Mapping[str, Any], most: Mapping[str, Any] | None = None, order: str = "") -> TreeNodeSpec:
    """A queue, and the namespace of its name."""
    return node(name, least, most, order, namespaces=(name,))


def node(
    name: str, least: Mapping[str, Any], most: Mapping[str, Any] | None = None, order: str = "", **more: Any
) -> TreeNodeSpec:
    attributes = {FLAVORS: order} if order else {}
    return TreeNodeSpec(name=name, min=texts(least), max=texts(most or {}), attributes=attributes, **more)


class Types(Scene):
    """A scene with a tree of flavors."""

    def flavors(
        self, whole: Mapping[str, Any], *children: TreeNodeSpec, of: list[dict[str, Any]] | None = None, **rules: Any
    ) -> None:
        """A tree; its flavors are the keys of ``whole``, in order, unless ``of`` says."""
        names = [flavor(name) for name in whole if name not in PLAIN]
        root = node("root", whole, whole, children=tuple(children))
        self.do(facts.tree(root, rules={"flavors": json.dumps(of or names)} | rules))
        self.bench.synced()
        self.settle()

    def asks(self, name: str, *sets: Pods, rules: PodRules | None = None, **fields: Any) -> None:
        """A job ``namespace/name`` of these pod sets."""
        self.do(facts.seen(self.job_of(name, *sets, rules=rules, **fields)))

    def job_of(self, name: str, *sets: Pods, rules: PodRules | None = None, **fields: Any) -> Workload:
        namespace, _, short = name.partition("/")
        named = [one if isinstance(one, tuple) else (f"set{index}", 1, one) for index, one in enumerate(sets)]
        pods = tuple(PodSet(called, count, vector(one), rules or PodRules()) for called, count, one in named)
        need: Vector = {}
        for one in pods:
            add_into(need, scaled(one.request, one.count))
        order = fields.pop("order", "")
        fields.setdefault("created", self.bench.now)
        labels = {FLAVORS: order} if order else {}
        labels |= {FLAVOR_WAIT: wait} if (wait := fields.pop("flavor_wait", "")) else {}
        job = facts.job(short, namespace, need={"ack": need, "full": need}, pod_sets=pods, labels=labels, **fields)
        self.jobs[name] = job
        return job

    def ends(self, name: str) -> None:
        """It is over, and nothing of it is left."""
        self.do(facts.gone(name.partition("/")[2], name.partition("/")[0]))

    def on(self, name: str) -> str:
        """The flavors of the newest reservation of a job, pod set by pod set; empty for none."""
        mine = [event for event in self.bench.happened(QuotaReserved) if event.ref.key == name]
        return " ".join("+".join(names) for names in mine[-1].flavors.values()) if mine else ""

    def on_each(self, queue: str, *names: str) -> list[str]:
        """The same of some jobs of a queue."""
        return [self.on(f"{queue}/{name}") for name in names]

    def charged(self, name: str) -> dict[str, int]:
        """{resource or flavor: GPUs} that a job is charged with now."""
        ledger = self.bench.states["quota_accountant"].ledger
        charge = ledger.charges.get(self.jobs[name].ref.uid)
        parts = charge.request if charge is not None else {}
        return {key.partition("@")[2] or "gpu": amount // 1000 for key, amount in parts.items() if amount}
