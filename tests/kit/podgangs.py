"""Gangs of pods under chance: an API server of nodes and pods, and an actuator that binds what is decided, or fails to.

What is true stands in `pods` (the cluster's own word); the stages hear of it by facts, in their own time.
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from kit import facts, nodes
from kit.bench import Bench
from muster.core.actuation.intents import Actuator
from muster.core.actuation.orders import Bind, Unbind, applied, failed, said
from muster.core.stage import Folder
from muster.events.facts import NodeGone, PodGone, PodGroupGone, PodGroupObserved, PodObserved
from muster.events.system import PlacementChosen
from muster.model.gang import PodGroup
from muster.model.keys import Ref
from muster.model.placing import HOSTNAME, PodRules, PodTerm, Requirement
from muster.model.quota import WIDTHS_TO_AGE
from muster.model.workload import PodState

SIGS = "pod-group.scheduling.sigs.k8s.io"
POLICIES = ("once-satisfied", "only-waiting", "waiting-and-running", "waiting-running-succeed")


def member(
    name: str,
    gang: str = "",
    minimum: int = 0,
    *,
    namespace: str = "video",
    cpu: int = 1,
    labels: dict[str, str] | None = None,
    marks: dict[str, str] | None = None,
    **fields: object,
) -> PodState:
    """A pod that waits, of a gang declared by labels."""
    said = {f"{SIGS}/name": gang} if gang else {}
    if minimum:
        said[f"{SIGS}/min-available"] = str(minimum)
    made = PodState(
        ref=Ref("Pod", namespace, name, f"uid-{namespace}-{name}"),
        rv=facts.next_rv(),
        request=facts.vector(cpu=cpu),
        labels=said | (labels or {}),
        scheduler="muster",
        created=1_000,
        marks=marks or {},
    )
    return replace(made, **fields) if fields else made


def pod_group(name: str, minimum: int, *, namespace: str = "video", timeout_s: int = 0, **annotations: str) -> PodGroup:
    uid = f"uid-group-{namespace}-{name}-{facts.next_rv()}"
    ref = Ref("PodGroup.scheduling.sigs.k8s.io", namespace, name, uid)
    return PodGroup(ref=ref, rv=facts.next_rv(), minimum=minimum, timeout_s=timeout_s, annotations=annotations)


class Scene:
    """A bench, an actuator beside it, and the pods as the API server has them."""

    def __init__(self, rng: Random | None = None, *, mode: str = "pack", hold_ms: int = 60_000) -> None:
        self.bench = Bench(rng)
        self.actuator, self.folder = Actuator().initial(), Folder(Actuator())
        self.pods: dict[str, PodState] = {}
        self.fresh: dict[str, None] = {}
        """Pods whose newest state has not been reported."""
        self.gone: list[PodGone] = []
        """Deletions that have not been reported."""
        self.binds = 0
        chosen = PlacementChosen(mode=mode, hold_ms=hold_ms)  # type: ignore[arg-type]
        self.bench.append("gang_admitter", "input", [chosen])
        self.bench.synced()

    @property
    def admitter(self) -> object:
        return self.bench.states["gang_admitter"]

    def orders(self) -> list[Bind]:
        """Pods to be bound; what is not to be bound any more is answered at once."""
        self._catch_up()
        for order in list(self.actuator.unbinds.values()):
            self.unbind(order)
        self._catch_up()
        return list(self.actuator.binds.values())

    def _catch_up(self) -> None:
        for stored in self.bench.log[self.actuator.seq :]:
            self.folder.fold(self.actuator, stored)

    def unbind(self, order: Unbind) -> None:
        """Say whether a pod has been bound that was not to be any more."""
        pod = self.pods.get(order.ref.uid)
        if pod is None:
            effect = failed(order, "gone", said("not found"))
        elif pod.node == order.node:
            effect = applied(order)
        else:
            effect = failed(order, "superseded" if pod.node else "withdrawn", said(""))
        self.bench.append("actuator", "input", [effect])

    def put(self, pod: PodState, *, tell: bool = True) -> None:
        """The API server has a pod in a new state."""
        self.pods[pod.ref.uid] = replace(pod, rv=facts.next_rv())
        self.fresh[pod.ref.uid] = None
        if tell:
            self.report()

    def report(self) -> None:
        for uid in list(self.fresh):
            if uid in self.pods:
                self.bench.facts(PodObserved(pod=self.pods[uid]))
        self.fresh.clear()
        if self.gone:
            self.bench.facts(*self.gone)
            self.gone.clear()

    def delete(self, uid: str, *, tell: bool = True) -> None:
        pod = self.pods.pop(uid)
        self.fresh.pop(uid, None)
        self.gone.append(PodGone(ref=pod.ref, rv=facts.next_rv()))
        if tell:
            self.report()

    def bind(self, order: Bind, *, tell: bool = True, lose: bool = False, refuse: str = "") -> None:
        """Carry one order out. `lose`: the actuator dies before the effect is stored; `refuse`: a policy says no."""
        pod = self.pods.get(order.ref.uid)
        if pod is None:
            effect = failed(order, "gone", said("not found"))
        elif pod.node == order.node:
            effect = applied(order)
        elif pod.node or pod.over:
            effect = failed(order, "superseded" if pod.node else "gone", said("it has a node"))
        elif refuse:
            effect = failed(order, "refused", said(refuse))
        else:
            self.binds += 1
            self.put(replace(pod, node=order.node), tell=False)
            effect = applied(order)
        if not lose:
            self.bench.append("actuator", "input", [effect])
        if tell:
            self.report()

    def passed(self, wide: int, cpu: int = 3) -> None:
        """Pods come, run and end on a node of their own, until those that wait with so many cores have aged."""
        self.bench.pass_time(1_000)
        self.bench.facts(nodes.node("aside", cpu=cpu))
        for _ in range(-(-WIDTHS_TO_AGE * wide // cpu)):
            pod = member(f"passes-{len(self.pods)}", cpu=cpu)
            self.put(pod)
            self.settle()
            self.put(replace(self.pods[pod.ref.uid], over=True, succeeded=True))
        self.settle()

    def settle(self) -> None:
        """Decide and bind until nothing is due."""
        while True:
            self.bench.settle()
            so_far = len(self.bench.log)
            for order in self.orders():
                self.bind(order)
            if len(self.bench.log) == so_far:
                return


class Chance(Scene):
    """Random actions of all actors; the stages answer, sometimes late."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng, mode=rng.choice(("pack", "spread", "off")))
        self.rng = rng
        self.nodes: dict[str, str] = {}
        self.count = 0
        self.gangs: dict[str, tuple[int, dict[str, str], dict[str, str], int]] = {}
        """name -> (minimum, labels, marks, priority)"""
        self.groups: dict[str, PodGroup] = {}

    def run(self, steps: int = 70) -> None:
        actions = (
            *(self.new_gang,) * 3,
            *(self.new_member,) * 6,
            *(self.new_node,) * 3,
            *(self.carry_out,) * 6,
            self.lose_node,
            self.foreign_pod,
            self.pod_ends,
            self.pod_deleted,
            self.single,
            self.say_group,
            self.drop_group,
            self.report,
            self.pass_time,
        )
        for _ in range(steps):
            self.rng.choice(actions)()
            self.answer()

    def answer(self) -> None:
        if self.rng.random() < 0.3:
            name = "gang_admitter"
            due, at = self.bench.seats[name].decisions(), len(self.bench.log)
            others = (
                self.pod_deleted,
                self.lose_node,
                self.foreign_pod,
                self.new_member,
                self.carry_out,
                self.report,
            )
            self.rng.choice(others)()
            self.bench.late(name, due, at)
        self.bench.settle()

    def new_gang(self) -> None:
        self.count += 1
        name, rng = f"gang-{self.count}", self.rng
        labels = {f"{SIGS}/match-policy": rng.choice(POLICIES)} if rng.random() < 0.7 else {}
        marks: dict[str, str] = {}
        if rng.random() < 0.25:
            other = f"gang-{self.count + 1}"
            group = f'["video/{name}", "video/{other}"]'
            marks = {f"{SIGS}/groups": group}
            self.gangs[other] = (rng.randint(1, 3), labels, marks, 0)
            self.count += 1
        self.gangs[name] = (rng.randint(1, 4), labels, marks, rng.choice((0, 0, 10)))

    def new_member(self) -> None:
        if not self.gangs:
            return
        self.count += 1
        name = self.rng.choice(sorted(self.gangs))
        minimum, labels, marks, priority = self.gangs[name]
        odd = 7 if self.rng.random() < 0.02 else 0
        rules = PodRules()
        if self.rng.random() < 0.1:
            rules = PodRules(apart=(PodTerm(HOSTNAME, (Requirement(f"{SIGS}/name", "In", (name,)),)),))
        pod = member(
            f"{name}-{self.count}",
            name,
            minimum if self.rng.random() > 0.03 else 0,
            cpu=self.rng.randint(1, 3),
            labels=labels,
            marks=marks,
            priority=priority + odd,
            rules=rules,
            gated=self.rng.random() < 0.03,
        )
        self.put(pod, tell=self.rng.random() < 0.8)

    def single(self) -> None:
        self.count += 1
        self.put(member(f"single-{self.count}", cpu=self.rng.randint(1, 3)))

    def new_node(self) -> None:
        name = f"n{self.rng.randint(0, 4)}"
        if name not in self.nodes:
            self.count += 1
            self.nodes[name] = f"uid-{name}-{self.count}"
        self.bench.facts(nodes.node(name, cpu=self.rng.randint(2, 8), uid=self.nodes[name]))

    def lose_node(self) -> None:
        """With its pods, some of which are heard of later."""
        if not self.nodes:
            return
        name = self.rng.choice(sorted(self.nodes))
        self.bench.facts(NodeGone(ref=Ref("Node", "", name, self.nodes.pop(name)), rv=facts.next_rv()))
        for uid in [uid for uid, pod in self.pods.items() if pod.node == name]:
            if self.rng.random() < 0.7:
                self.delete(uid)

    def foreign_pod(self) -> None:
        self.count += 1
        ref = Ref("Pod", "other", f"foreign-{self.count}", f"foreign-{self.count}")
        where = f"n{self.rng.randint(0, 4)}"
        self.put(PodState(ref=ref, rv=0, node=where, request=facts.vector(cpu=self.rng.randint(1, 3))))

    def pod_ends(self) -> None:
        running = sorted(uid for uid, pod in self.pods.items() if pod.node and not pod.over)
        if running:
            pod = self.pods[self.rng.choice(running)]
            self.put(replace(pod, over=True, succeeded=self.rng.random() < 0.7))

    def pod_deleted(self) -> None:
        """Often one that is about to be bound."""
        due = sorted(order.ref.uid for order in self.orders() if order.ref.uid in self.pods)
        if self.pods:
            whom = due if due and self.rng.random() < 0.5 else sorted(self.pods)
            self.delete(self.rng.choice(whom), tell=self.rng.random() < 0.5)

    def say_group(self) -> None:
        if self.gangs:
            name = self.rng.choice(sorted(self.gangs))
            self.groups[name] = pod_group(name, self.rng.randint(0, 4), timeout_s=self.rng.choice((0, 10)))
            self.bench.facts(PodGroupObserved(pod_group=self.groups[name]))

    def drop_group(self) -> None:
        if self.groups:
            group = self.groups.pop(self.rng.choice(sorted(self.groups)))
            self.bench.facts(PodGroupGone(ref=group.ref, rv=facts.next_rv()))

    def carry_out(self) -> None:
        orders = self.orders()
        self.rng.shuffle(orders)
        for order in orders[: self.rng.randint(1, 4)]:
            refuse = "a policy says no" if self.rng.random() < 0.1 else ""
            tell, lose = self.rng.random() < 0.6, self.rng.random() < 0.1
            self.bind(order, tell=tell, lose=lose, refuse=refuse)

    def pass_time(self) -> None:
        self.bench.pass_time(self.rng.choice((1_000, 20_000, 70_000, 700_000)))

    def peace(self) -> None:
        """Everything that was kept back is heard of, foreign pods leave, there is room, and an hour passes."""
        for uid in list(self.pods):
            if uid.startswith("foreign") or (self.pods[uid].node and self.pods[uid].node not in self.nodes):
                self.delete(uid)
        self.report()
        for index in range(6):
            self.bench.facts(nodes.node(f"large-{index}", cpu=200))
        for index in range(6, 14):
            self.settle()
            # Whoever may not be beside others of its gang may find some of them on every node there is.
            self.bench.facts(nodes.node(f"large-{index}", cpu=200))
            self.bench.pass_time(600_000)
        self.settle()
