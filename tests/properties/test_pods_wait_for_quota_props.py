"""Pods of no job wait for their quota: whatever comes in whatever order, what we place stays within every max."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings

from kit import facts, nodes
from kit.audits import audit
from kit.depth import examples
from kit.histories import SEEDS, SETTINGS
from kit.podgangs import Scene, member
from muster.runtime.replaying.replay import replay

MAX_CPU = {"video": 14_000, "devops": 8_000}
FEWER = settings(SETTINGS, max_examples=examples(40))


class Pods(Scene):
    """Pods and gangs in two namespaces of one tree, on nodes that have room for all of them."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.rng, self.count = rng, 0
        self.bench.facts(facts.tree())
        self.bench.facts(nodes.node("n", cpu=200, pods=500))
        if rng.random() < 0.5:
            self.bench.settle()  # Else pods come before the tree is judged.

    def step(self) -> None:
        draw = self.rng.random()
        if draw < 0.35:
            self.some(1)
        elif draw < 0.6:
            self.some(self.rng.randint(2, 4))
        elif draw < 0.8 and self.orders():
            self.bind(self.rng.choice(self.orders()), refuse="no" if self.rng.random() < 0.1 else "")
        elif self.pods:
            self.ends(self.rng.choice(sorted(self.pods)))
        else:
            self.bench.pass_time(self.rng.choice((1_000, 60_000)))
        if self.rng.random() < 0.7:
            self.bench.settle()
        self.judge()

    def some(self, size: int) -> None:
        self.count += 1
        namespace, cpu = self.rng.choice(sorted(MAX_CPU)), self.rng.randint(1, 6)
        name = f"g{self.count}" if size > 1 else ""
        least = self.rng.randint(1, min(size, 8 // cpu))
        for index in range(size):
            self.put(member(f"p{self.count}-{index}", name, least if name else 0, namespace=namespace, cpu=cpu))

    def ends(self, uid: str) -> None:
        """A pod, and its gang."""
        family = uid.rpartition("-")[0]
        for each in [each for each in self.pods if each.startswith(f"{family}-")]:
            self.delete(each)

    def judge(self) -> None:
        """By the API server alone: of the pods that have a node, and of those that are about to."""
        placed = {order.ref.uid for order in self.orders()}
        for namespace, most in MAX_CPU.items():
            taken = sum(
                pod.request["cpu"]
                for uid, pod in self.pods.items()
                if pod.ref.namespace == namespace and (pod.node or uid in placed)
            )
            assert taken <= most, f"{namespace} runs {taken} of {most}"

    def emptied(self) -> None:
        """All that runs ends, until nothing waits any more."""
        for _ in range(200):
            self.settle()
            self.bench.pass_time(120_000)
            bound = [uid for uid, pod in self.pods.items() if pod.node]
            if not bound:
                return
            for uid in bound:
                self.ends(uid)


@FEWER
@given(SEEDS)
def test_no_max_is_passed_and_nothing_waits_for_ever(seed: int) -> None:
    play = Pods(Random(seed))
    for _ in range(30):
        play.step()
    play.emptied()
    assert not play.pods, f"{sorted(play.pods)} wait though nothing runs"
    audited = audit(play.bench.log)
    assert audited.checks["I29"] and not audited.violations, audited.violations[0]
    report = replay(play.bench.log, silences=False)
    assert not report.divergences, report.divergences[0]
