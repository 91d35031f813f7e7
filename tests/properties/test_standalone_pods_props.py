"""Pods of no job beside the jobs of a quota: charged while they run, whatever order the facts come in."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kit import facts
from kit.chaos import NAMESPACES, Chaos
from kit.depth import examples
from kit.histories import SEEDS, SETTINGS
from muster.events.decisions import WorkloadAdopted
from muster.events.facts import PodGone, PodObserved
from muster.model.keys import Ref
from muster.model.workload import PodState
from muster.runtime.replaying.replay import replay

FEWER = settings(SETTINGS, max_examples=examples(60))


class Beside(Chaos):
    """Chaos with pods that come, are bound, end and go."""

    def __init__(self, rng: Random, which: str) -> None:
        self.pods: dict[str, PodState] = {}
        self.count = 0
        super().__init__(rng, **{"charge-pods": which})

    def truth_changes(self) -> None:
        if self.rng.random() < 0.6:
            super().truth_changes()
        elif len(self.pods) < 8 and self.rng.random() < 0.5:
            self.count += 1
            name, namespace = f"pod-{self.count}", self.rng.choice((*NAMESPACES, "elsewhere"))
            self._put(
                PodState(
                    ref=Ref("Pod", namespace, name, f"uid-{name}"),
                    rv=0,
                    node=self.rng.choice(("", "n")),
                    request=facts.vector(cpu=self.rng.randint(1, 3)),
                    scheduler=self.rng.choice(("muster", "")),
                )
            )
        elif self.pods:
            pod = self.pods[self.rng.choice(sorted(self.pods))]
            if not pod.node:
                self._put(replace(pod, node="n"))
            elif not pod.over and self.rng.random() < 0.5:
                self._put(replace(pod, over=True))
            else:
                del self.pods[pod.ref.uid]
                self.pending.append(PodGone(ref=pod.ref, rv=facts.next_rv()))

    def _put(self, pod: PodState) -> None:
        self.pods[pod.ref.uid] = replace(pod, rv=facts.next_rv())
        self.pending.append(PodObserved(pod=self.pods[pod.ref.uid]))

    def occupies(self, which: str) -> set[str]:
        """uids of the pods that hold something of a quota."""
        live = [pod for pod in self.pods.values() if pod.node and not pod.over and pod.ref.namespace in NAMESPACES]
        return {pod.ref.uid for pod in live if which == "all" or pod.ours}


@FEWER
@given(SEEDS, st.sampled_from(("ours", "all")))
def test_what_is_charged_is_what_runs_and_it_replays(seed: int, which: str) -> None:
    chaos = Beside(Random(seed), which)
    chaos.run()
    chaos.audit()
    entries = chaos.bench.states["quota_accountant"].entries
    assert {uid for uid, entry in entries.items() if entry.ref.kind == "Pod"} == chaos.occupies(which)
    report = replay(chaos.bench.log, silences=False)
    assert not report.divergences, report.divergences[0]


def test_unless_the_tree_says_so_nothing_of_it_is_counted() -> None:
    charged = []
    for which in ("none", "ours"):
        chaos = Beside(Random(5), which)
        chaos.run()
        events = [event for stored in chaos.bench.log for event in stored.commit.events]
        charged.append(sum(isinstance(e, WorkloadAdopted) and e.ref.kind == "Pod" for e in events))
    assert charged[0] == 0 < charged[1]
