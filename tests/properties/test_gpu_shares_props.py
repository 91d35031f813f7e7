"""Shares of GPUs under chance: pods come and go, nodes are lost, drained, relabelled and lose devices, bindings are
lost or refused, and decisions take effect late.

What is true stands in the pods as the API server has them; what is checked is what was promised to whom.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kit import facts, nodes
from kit.depth import examples
from kit.podgangs import Scene, member
from muster.core.actuation.orders import Bind
from muster.core.placement.devices import DEVICE, WHOLE, share_on
from muster.events.facts import NodeGone
from muster.events.gangs import PodsPlaced, PodsReleased
from muster.model.keys import Ref
from muster.model.placing import GPU, PodRules
from muster.model.workload import PodState

GPUS = {"n0": 2, "n1": 4, "n2": 1}


class Sharing(Scene):
    """Pods that take shares, amounts of memory or whole GPUs, on three nodes."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng, mode=rng.choice(("pack", "spread", "off")))
        self.rng = rng
        self.nodes: dict[str, str] = {}
        """name -> uid"""
        self.gpus: dict[str, int] = {}
        self.memory: dict[str, str] = {}
        self.drained: set[str] = set()
        self.changed: dict[str, int] = {}
        """node -> sequence at which it last had less than before: who was there may be too many since"""
        self.decided: dict[str, int] = {}
        """uid of a bound pod -> what the admitter had seen when it chose its place"""
        self.count = 0
        for name in GPUS:
            self.new_node(name)

    def run(self, steps: int = 60) -> None:
        actions = (*(self.new_pods,) * 5, *(self.carry_out,) * 5, *(self.pod_leaves,) * 3)
        actions = (*actions, self.lose_node, self.change_node, self.report, self.pass_time)
        for _ in range(steps):
            if self.rng.random() < 0.2:
                self.late(self.rng.choice(actions))
            else:
                self.rng.choice(actions)()
            self.bench.settle()
            self.examine()

    def late(self, action: Callable[[], None]) -> None:
        """What the admitter decides now takes effect only when something else has happened."""
        due, at = self.bench.seats["gang_admitter"].decisions(), len(self.bench.log)
        action()
        self.bench.late("gang_admitter", due, at)

    def pass_time(self) -> None:
        self.bench.pass_time(self.rng.choice((1_000, 90_000)))

    def new_node(self, name: str) -> None:
        self.count += 1
        self.nodes[name], self.gpus[name] = f"uid-{name}-{self.count}", GPUS[name]
        self.memory[name] = "16384"
        self.drained.discard(name)
        self.changed.pop(name, None)
        self.tell_node(name)

    def change_node(self) -> None:
        """A device breaks or is mended, its memory is labelled anew, or the node is drained or taken back."""
        if not self.nodes:
            return
        name = self.rng.choice(sorted(self.nodes))
        match self.rng.choice(("gpus", "memory", "drain")):
            case "gpus":
                self.gpus[name] = self.rng.randint(0, GPUS[name])
            case "memory":
                self.memory[name] = self.rng.choice(("16384", "8192", "24576"))
            case "drain":
                self.drained ^= {name}
        self.tell_node(name)
        self.changed[name] = len(self.bench.log)

    def tell_node(self, name: str) -> None:
        seen = nodes.node(
            name,
            cpu=64,
            gpu=self.gpus[name],
            labels=self.labels(name),
            uid=self.nodes[name],
            schedulable=name not in self.drained,
        )
        self.bench.facts(seen)

    def labels(self, name: str) -> dict[str, str]:
        return {"nvidia.com/gpu.memory": self.memory[name]}

    def new_pods(self) -> None:
        """Several at once, of one gang or of none."""
        rng = self.rng
        kind = rng.choice(("share", "share", "memory", "whole"))
        devices = rng.choice((1, 1, 2)) if kind != "whole" else 1
        rules = PodRules()
        if kind == "share":
            rules = PodRules(share=rng.choice((1, 100, 333, 334, 500, 501, 810, 999)), devices=devices)
        elif kind == "memory":
            rules = PodRules(gpu_memory=rng.choice((1, 4096, 8192, 8193, 16384, 20000)), devices=devices)
        request = facts.vector(cpu=1) | ({GPU: rng.choice((1, 2)) * WHOLE} if kind == "whole" else {})
        self.count += 1
        gang, count = (f"g{self.count}" if rng.random() < 0.4 else ""), rng.randint(1, 4)
        for index in range(count):
            pod = member(f"p{self.count}-{index}", gang, count if gang else 0, request=request, rules=rules)
            self.put(pod, tell=rng.random() < 0.8)

    def carry_out(self) -> None:
        orders = self.orders()
        self.rng.shuffle(orders)
        for order in orders[: self.rng.randint(1, 5)]:
            refuse = "a policy says no" if self.rng.random() < 0.1 else ""
            self.bind(order, tell=self.rng.random() < 0.6, lose=self.rng.random() < 0.1, refuse=refuse)

    def bind(self, order: Bind, *, tell: bool = True, lose: bool = False, refuse: str = "") -> None:
        """The binding writes the devices and their groups on the pod."""
        pod = self.pods.get(order.ref.uid)
        if pod is not None and not pod.node and not pod.over and not refuse:
            self.decided[order.ref.uid] = self.bench.log[order.intent.seq - 1].commit.in_seq
            self.pods[order.ref.uid] = replace(pod, devices=order.devices, groups=order.groups)
        super().bind(order, tell=tell, lose=lose, refuse=refuse)

    def pod_leaves(self) -> None:
        if self.pods:
            uid = self.rng.choice(sorted(self.pods))
            if self.rng.random() < 0.5 and self.pods[uid].node:
                self.put(replace(self.pods[uid], over=True, succeeded=True))
            else:
                self.delete(uid, tell=self.rng.random() < 0.7)

    def lose_node(self) -> None:
        name = self.rng.choice(sorted(GPUS))
        if name not in self.nodes:
            self.new_node(name)
            return
        self.bench.facts(NodeGone(ref=Ref("Node", "", name, self.nodes.pop(name)), rv=facts.next_rv()))
        for uid in [uid for uid, pod in self.pods.items() if pod.node == name]:
            self.delete(uid, tell=self.rng.random() < 0.7)

    def examine(self) -> None:
        """Of pods that are bound and live: no device is given for more than it is, or whole and shared."""
        pods = [pod for pod in self.pods.values() if pod.node in self.nodes and not pod.over]
        for name in self.nodes:
            self.examine_node(name, [pod for pod in pods if pod.node == name])

    def examine_node(self, name: str, pods: list[PodState]) -> None:
        taken, groups = dict[int, int](), dict[int, set[str]]()
        whole, newest_of, newest = 0, dict[int, int](), 0
        since = self.changed.get(name, 0)
        for pod in pods:
            share, at = share_on(pod.rules, self.labels(name)), self.decided[pod.ref.uid]
            asked = pod.request.get(GPU, 0) // WHOLE
            whole += asked
            newest = max(newest, at if asked or share else 0)
            assert len(set(pod.devices)) == len(pod.devices) == (pod.rules.devices if share else 0), pod
            assert len(pod.groups) == len(pod.devices), pod
            for device, group in zip(pod.devices, pod.groups, strict=True):
                taken[device] = taken.get(device, 0) + share
                newest_of[device] = max(newest_of.get(device, 0), at)
                groups.setdefault(device, set()).add(group)
        for device, sum_of in taken.items():
            assert sum_of <= DEVICE or newest_of[device] < since, (name, device, sum_of, since)
        assert whole + len(taken) <= self.gpus[name] or newest < since, (name, whole, taken, since)
        assert all(len(found) == 1 for found in groups.values()), groups
        assert len({each for found in groups.values() for each in found}) == len(groups), groups
        if name in self.drained:
            assert all(self.decided[pod.ref.uid] < since for pod in pods), (name, since)


@settings(max_examples=examples(60))
@given(st.integers(min_value=0, max_value=10**9))
def test_no_device_is_given_for_more_than_it_is_or_whole_and_shared(seed: int) -> None:
    play = Sharing(Random(seed))
    play.run()
    play.report()
    play.bench.sound()


def test_the_attack_shares_devices_at_all() -> None:
    """What the property looks at does happen."""
    shared, withdrawn = 0, 0
    for seed in range(5):
        play = Sharing(Random(seed))
        play.run()
        for placed in play.bench.happened(PodsPlaced):
            shared += sum(len(each.devices) > 0 for each in placed.pods)
        withdrawn += len(play.bench.happened(PodsReleased))
    assert shared > 20
    assert withdrawn > 5
