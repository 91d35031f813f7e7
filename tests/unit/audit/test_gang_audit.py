"""The auditor reads gangs without the admitter's reader: a fault of that reader is a finding."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kit import nodes
from kit.audits import audit
from kit.podgangs import SIGS, Scene, member, pod_group
from muster.core.gang import declare
from muster.events.facts import PodGroupObserved


class Gang(Scene):
    """A gang whose pods declare a minimum of four, on a node with room for all."""

    def __init__(self, *, minimum_of_group: int = 0) -> None:
        super().__init__()
        self.bench.facts(nodes.node("n1", cpu=20))
        if minimum_of_group:
            self.bench.facts(PodGroupObserved(pod_group=pod_group("a", minimum_of_group)))

    def create(self, *names: str) -> None:
        for name in names:
            self.put(member(name, "a", 4, labels={f"{SIGS}/match-policy": "only-waiting"}))
        self.settle()

    def bound(self) -> list[str]:
        return sorted(pod.ref.name for pod in self.pods.values() if pod.node and not pod.over)

    def findings(self) -> int:
        return audit(self.bench.log).broken.get("I3", 0)


@pytest.mark.parametrize("planted", [False, True])
def test_a_misread_minimum_is_found(monkeypatch: pytest.MonkeyPatch, planted: bool) -> None:
    if planted:
        monkeypatch.setattr(declare, "_minimum", lambda *read: (2, None))
    gang = Gang()
    gang.create("a-0", "a-1")
    assert (gang.bound(), gang.findings()) == ((["a-0", "a-1"], 1) if planted else ([], 0))


@pytest.mark.parametrize("planted", [False, True])
def test_a_misread_policy_is_found(monkeypatch: pytest.MonkeyPatch, planted: bool) -> None:
    """One pod of a gang is replaced; the policy asks for a full new set."""
    if planted:
        monkeypatch.setattr(declare, "_policy", lambda *read: "once-satisfied")
    gang = Gang()
    gang.create("a-0", "a-1", "a-2", "a-3")
    gang.put(replace(gang.pods["uid-video-a-0"], over=True))
    gang.create("a-4")
    started = ["a-1", "a-2", "a-3", *(["a-4"] if planted else [])]
    assert (gang.bound(), gang.findings()) == (started, int(planted))


@pytest.mark.parametrize(("minimum", "bound"), [(2, ["a-0", "a-1"]), (3, [])])
def test_the_minimum_of_a_pod_group_comes_before_the_label(minimum: int, bound: list[str]) -> None:
    gang = Gang(minimum_of_group=minimum)
    gang.create("a-0", "a-1")
    assert (gang.bound(), gang.findings()) == (bound, 0)
