"""Gangs of pods, case by case: the rules of the documents, and what each gang is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import pytest
from msgspec.structs import replace

from kit import facts, nodes
from kit.podgangs import SIGS, Scene, member, pod_group
from kit.words import in_words
from muster.core.gang.nodeclaims import LEAST_MS
from muster.core.gang.podunits import BROKEN_MS, GRACE_MS, MAX_AT_ONCE, STARVED_MS
from muster.events.base import Event
from muster.events.envelope import MAX_BYTES, encode_commit
from muster.events.facts import NodeGone, PodGroupObserved, PodObserved, QuotaTreeObserved
from muster.events.gangs import GangHeldBack, NodesClaimed, NodesClaimEnded, PodsPlaced, PodsReleased
from muster.model.keys import Ref
from muster.model.quota import WIDTHS_TO_AGE
from muster.model.workload import PodState

E = TypeVar("E", bound=Event)


class Case(Scene):
    def add(self, *pods: PodState) -> None:
        for pod in pods:
            self.put(pod)

    def node(self, name: str, cpu: int) -> None:
        self.bench.facts(nodes.node(name, cpu=cpu))

    def happened(self, kind: type[E]) -> list[E]:
        return self.bench.happened(kind)

    def told(self) -> list[tuple[str, str]]:
        return [(event.gang or event.pods[0].name, event.reason) for event in self.happened(GangHeldBack)]

    def bound(self) -> list[str]:
        return sorted(pod.ref.name for pod in self.pods.values() if pod.node and not pod.over)

    def ends(self, name: str, *, succeeded: bool = True) -> None:
        self.put(replace(self.pods[f"uid-video-{name}"], over=True, succeeded=succeeded))

    def removed(self, name: str) -> None:
        self.delete(f"uid-video-{name}")


@pytest.fixture
def case() -> Iterator[Case]:
    yield Case()


def gang(name: str, count: int, cpu: int = 1, minimum: int | None = None, **fields: object) -> list[PodState]:
    least = count if minimum is None else minimum
    return [member(f"{name}-{index}", name, least, cpu=cpu, **fields) for index in range(count)]  # type: ignore[arg-type]


def test_nothing_is_held_for_a_gang_that_is_not_whole(case: Case) -> None:
    case.node("n1", 2)
    case.add(*gang("a", 3))
    case.settle()
    assert case.bound() == []
    case.add(member("other", cpu=2))
    case.settle()
    assert case.bound() == ["other"]
    told = case.happened(GangHeldBack)[0]
    assert (told.reason, told.waiting, told.minimum, told.cycle) == ("no_nodes", 3, 3, 1)
    assert told.shortage is not None
    assert (told.shortage.fitted, told.shortage.nodes) == (2, 1)


def test_more_than_the_minimum_come_along_where_there_is_room(case: Case) -> None:
    case.node("n1", 3)
    case.add(*gang("a", 4, minimum=2))
    case.settle()
    assert case.bound() == ["a-0", "a-1", "a-2"]
    assert len(case.happened(PodsPlaced)) == 1
    case.node("n2", 1)
    case.settle()
    assert case.bound() == ["a-0", "a-1", "a-2", "a-3"]


def test_a_pod_that_never_fits_does_not_keep_the_minimum_back(case: Case) -> None:
    case.node("n1", 3)
    case.add(member("a-0", "a", 2, cpu=50), *gang("b", 0), member("a-1", "a", 2), member("a-2", "a", 2))
    case.settle()
    assert case.bound() == ["a-1", "a-2"]


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        ("once-satisfied", True),
        ("only-waiting", False),
        ("waiting-and-running", False),
        ("waiting-running-succeed", True),
    ],
)
def test_policies_count_what_they_say(case: Case, policy: str, starts: bool) -> None:
    """Three run, two succeed, and a new one comes."""
    labels = {f"{SIGS}/match-policy": policy}
    case.node("n1", 10)
    case.add(*gang("a", 3, labels=labels))
    case.settle()
    assert len(case.bound()) == 3
    case.ends("a-0")
    case.ends("a-1")
    case.add(member("a-3", "a", 3, labels=labels))
    case.settle()
    assert ("a-3" in case.bound()) is starts
    case.bench.pass_time(GRACE_MS + 1)
    assert (("video/a", "too_few_pods") in case.told()) is not starts


def test_gangs_of_a_group_start_in_one_decision_or_not_at_all(case: Case) -> None:
    marks = {f"{SIGS}/groups": '["video/a", "video/b"]'}
    case.node("n1", 4)
    case.add(*gang("a", 2, marks=marks))
    case.settle()
    case.bench.pass_time(GRACE_MS + 1)
    assert case.told() == [("video/a", "group_incomplete")]
    case.add(*gang("b", 3, marks=marks))
    case.settle()
    assert case.bound() == []
    assert ("video/b", "no_nodes") in case.told()
    case.node("n2", 1)
    case.settle()
    assert len(case.bound()) == 5
    assert [event.gangs for event in case.happened(PodsPlaced)] == [("video/a", "video/b")]


def test_a_gang_with_two_priorities_is_refused_until_they_are_one(case: Case) -> None:
    case.node("n1", 10)
    case.add(*gang("a", 2, priority=5), member("a-9", "a", 2, priority=7))
    case.settle()
    told = case.happened(GangHeldBack)
    assert [each.reason for each in told] == ["priority_clash"]
    assert "a-9 has 7, others have 5" in in_words(told[0].problem)
    case.removed("a-9")
    case.settle()
    assert case.bound() == ["a-0", "a-1"]


def test_priority_then_age_then_name_is_the_order(case: Case) -> None:
    case.add(*gang("young", 2, created=9_000), *gang("old", 2, created=5_000))
    case.add(*gang("high", 2, created=9_000, priority=1))
    case.settle()
    case.node("n1", 2)
    case.settle()
    case.node("n2", 2)
    case.settle()
    case.node("n3", 2)
    case.settle()
    assert [event.gangs for event in case.happened(PodsPlaced)] == [("video/high",), ("video/old",), ("video/young",)]


def test_of_two_gangs_one_runs_and_the_other_is_told_which(case: Case) -> None:
    case.node("n1", 6)
    for one, other in zip(gang("a", 5), gang("b", 5), strict=True):
        case.add(one, other)
    case.settle()
    assert case.bound() == [f"a-{index}" for index in range(5)]
    told = case.happened(GangHeldBack)[-1]
    assert (told.gang, told.reason, told.by) == ("video/b", "gave_way", "video/a")
    case.bench.pass_time(STARVED_MS + 1)
    case.settle()
    starved = [event for event in case.happened(GangHeldBack) if event.reason == "starved"]
    assert starved
    assert starved[0].by == "video/a"
    for index in range(5):
        case.ends(f"a-{index}")
    case.settle()
    assert case.bound() == [f"b-{index}" for index in range(5)]


def test_who_was_told_lately_that_there_is_no_room_is_told_at_once_who_took_it(case: Case) -> None:
    case.node("n1", 4)
    case.add(*gang("a", 5), *gang("b", 5))
    case.settle()
    assert case.told() == [("video/a", "no_nodes"), ("video/b", "no_nodes")]
    case.node("n2", 2)
    case.settle()
    assert len(case.bound()) == 5
    assert case.told()[2:] == [("video/b", "gave_way")]
    assert case.happened(GangHeldBack)[-1].by == "video/a"


def test_a_round_ends_when_its_time_is_over_and_the_next_is_longer(case: Case) -> None:
    case.node("n1", 2)
    case.bench.facts(PodGroupObserved(pod_group=pod_group("a", 3, timeout_s=10)))
    case.add(*gang("a", 3, minimum=99))
    case.settle()
    assert case.happened(GangHeldBack)[-1].minimum == 3
    case.bench.pass_time(9_999)
    assert case.told() == [("video/a", "no_nodes")]
    case.bench.pass_time(1)
    assert case.told()[1:] == [("video/a", "timed_out")]
    assert [event.cycle for event in case.happened(GangHeldBack)] == [1, 1]
    case.bench.pass_time(19_999)
    assert len(case.told()) == 2
    case.bench.pass_time(1)
    assert case.happened(GangHeldBack)[-1].cycle == 2
    case.node("n2", 1)
    case.settle()
    assert case.happened(PodsPlaced)[0].cycle == 3


def test_an_unreadable_minimum_is_refused_with_its_key(case: Case) -> None:
    case.node("n1", 9)
    case.add(member("a-0", "a", labels={f"{SIGS}/min-available": "x"}))
    case.settle()
    told = case.happened(GangHeldBack)
    assert [each.reason for each in told] == ["refused"]
    assert "min-available: 'x' is not a count" in in_words(told[0].problem)


def test_a_gang_of_the_default_scheduler_is_told_what_to_set(case: Case) -> None:
    case.node("n1", 9)
    case.add(*gang("a", 2, scheduler="default-scheduler"))
    case.settle()
    assert case.told() == []
    case.bench.pass_time(GRACE_MS + 1)
    told = case.happened(GangHeldBack)
    assert [each.reason for each in told] == ["other_scheduler"]
    assert in_words(told[0].problem).endswith("set schedulerName: muster")
    assert not case.orders()


def test_gated_pods_wait_for_their_gates(case: Case) -> None:
    case.node("n1", 9)
    case.add(*gang("a", 1, minimum=2), member("a-1", "a", 2, gated=True), member("one", gated=True))
    case.settle()
    assert sorted(case.told()) == [("one", "gated"), ("video/a", "gated")]
    case.put(replace(case.pods["uid-video-a-1"], gated=False))
    case.settle()
    assert case.bound() == ["a-0", "a-1"]


def test_a_node_that_goes_before_the_bind_is_replaced(case: Case) -> None:
    case.node("n1", 3)
    case.add(*gang("a", 3))
    case.bench.settle()
    case.bind(case.orders()[0])
    case.bench.facts(NodeGone(ref=Ref("Node", "", "n1", "uid-n1"), rv=facts.next_rv()))
    case.bench.settle()
    assert [event.reason for event in case.happened(PodsReleased)] == ["node_gone"]
    assert not case.orders()
    case.node("n2", 2)
    case.settle()
    assert {pod.node for pod in case.pods.values()} == {"n1", "n2"}
    assert len(case.bound()) == 3


def test_a_foreign_pod_that_takes_the_room_makes_the_pod_go_elsewhere(case: Case) -> None:
    case.node("n1", 2)
    case.add(*gang("a", 2))
    case.bench.settle()
    case.bind(case.orders()[0])
    foreign = PodState(ref=Ref("Pod", "other", "f", "f"), rv=0, node="n1", request=facts.vector(cpu=1))
    case.put(foreign)
    case.bench.settle()
    assert [(event.reason, len(event.pods)) for event in case.happened(PodsReleased)] == [("no_room", 1)]
    case.node("n2", 1)
    case.settle()
    assert case.bound() == ["a-0", "a-1", "f"]


def test_a_refused_bind_is_told_and_tried_again_later(case: Case) -> None:
    case.node("n1", 3)
    case.add(*gang("a", 2))
    case.bench.settle()
    one, other = case.orders()
    case.bind(one)
    case.bind(other, refuse="denied by a policy")
    case.bench.settle()
    assert not case.orders()
    told = case.happened(GangHeldBack)
    assert [each.reason for each in told] == ["bind_refused"]
    assert "denied by a policy" in in_words(told[0].problem)
    case.bench.pass_time(30_000)
    case.settle()
    assert case.bound() == ["a-0", "a-1"]


def test_a_pod_deleted_between_decision_and_commit_voids_the_whole_decision(case: Case) -> None:
    case.node("n1", 3)
    case.add(*gang("a", 3))
    stage, state = case.bench.seats["gang_admitter"].stage, case.bench.states["gang_admitter"]
    due, at = stage.decide(state), len(case.bench.log)
    case.removed("a-2")
    case.bench.append("gang_admitter", "decision", due, in_seq=at)
    case.bench.settle()
    assert not case.orders()
    assert not state.pods.placed
    case.add(member("a-3", "a", 3))
    case.settle()
    assert case.bound() == ["a-0", "a-1", "a-3"]


def test_a_big_gang_claims_nodes_and_small_ones_go_on_beside_it(case: Case) -> None:
    """Four nodes full of small pods that come and go would never be empty at once."""
    for index in range(4):
        case.node(f"n{index}", 4)
    for index in range(4):
        case.add(member(f"s-{index}", cpu=4))
        case.settle()
    case.add(*gang("big", 2, cpu=4))
    case.settle()
    case.bench.pass_time(LEAST_MS)
    last = 2 * WIDTHS_TO_AGE
    for number in range(last):
        assert not case.happened(NodesClaimed)
        case.ends(f"s-{number}")
        case.add(member(f"s-{number + 4}", cpu=4))
        case.settle()
    claims = case.happened(NodesClaimed)
    assert [each.gang for each in claims] == ["video/big"]
    kept = {place.node for place in claims[0].places}
    assert len(kept) == 2
    for number in range(4):
        case.ends(f"s-{last + number}")
        case.add(member(f"t-{number}", cpu=4))
        case.settle()
    assert case.bound() == sorted(["big-0", "big-1", *[name for name in case.bound() if name.startswith("t-")]])
    assert {case.pods[f"uid-video-big-{index}"].node for index in range(2)} == kept
    assert [each.outcome for each in case.happened(NodesClaimEnded)] == ["placed"]
    assert len([name for name in case.bound() if name.startswith("t-")]) == 2


def test_a_claim_ends_with_its_time(case: Case) -> None:
    for index in range(2):
        case.node(f"n{index}", 4)
        case.add(member(f"s-{index}", cpu=4))
        case.settle()
    case.add(*gang("big", 2, cpu=4))
    case.settle()
    case.passed(8)
    case.ends("s-0")
    case.add(member("t", cpu=4))
    case.settle()
    assert case.bound() == ["s-1"]
    case.bench.pass_time(LEAST_MS)
    case.settle()
    assert [each.outcome for each in case.happened(NodesClaimEnded)] == ["expired"]
    assert case.bound() == ["s-1", "t"]


def test_a_gang_that_loses_pods_and_gets_no_others_is_told_once(case: Case) -> None:
    case.node("n1", 3)
    case.add(*gang("a", 3))
    case.settle()
    case.ends("a-0", succeeded=False)
    case.removed("a-1")
    case.bench.pass_time(BROKEN_MS - 1)
    assert case.told() == []
    case.bench.pass_time(600_000)
    told = case.happened(GangHeldBack)
    assert [(each.reason, each.minimum) for each in told] == [("broken", 2)]
    assert in_words(told[0].problem) == "1 of its pods run, 2 more are needed"
    case.add(member("a-5", "a", 3), member("a-6", "a", 3))
    case.settle()
    assert case.bound() == ["a-2", "a-5", "a-6"]


def test_a_decision_is_never_longer_than_a_message_may_be(case: Case) -> None:
    for index in range(20):
        case.node(f"n{index}", 200)
    many = [f"{'a' * 60}-{index:04d}" for index in range(MAX_AT_ONCE + 1)]
    case.bench.facts(*(PodObserved(pod=member(name, "large", 1)) for name in many))
    case.bench.settle()
    placed = case.happened(PodsPlaced)
    assert [len(event.pods) for event in placed] == [MAX_AT_ONCE, 1]
    assert (
        max(len(encode_commit(stored.commit)) for stored in case.bench.log if stored.commit.kind == "decision")
        < MAX_BYTES
    )
    case.bench.facts(*(PodObserved(pod=member(f"b-{name}", "huge", MAX_AT_ONCE + 1)) for name in many))
    case.bench.settle()
    assert case.happened(GangHeldBack)[-1].reason == "refused"


def test_where_jobs_are_not_placed_pods_that_name_us_are(case: Case) -> None:
    case = Case(mode="off")
    case.node("n1", 3)
    case.add(*gang("a", 2))
    case.settle()
    assert case.bound() == ["a-0", "a-1"]


def quota_of(cpu: int) -> QuotaTreeObserved:
    leaf = facts.node("a", {}, {"cpu": cpu}, ("video",))
    return facts.tree(facts.node("root", {"cpu": cpu}, {"cpu": cpu}, children=(leaf,)))


def test_the_last_of_many_gangs_is_placed_though_their_charges_do_not_fit_into_one_commit() -> None:
    """Thirteen gangs of twenty pods wait for quota, and get as much as all of them ask for; a commit has 256 events."""
    scene = Scene()
    scene.bench.facts(*(nodes.node(f"n{index}", cpu=26) for index in range(10)))
    scene.bench.facts(quota_of(0))
    for gang in range(13):
        for index in range(20):
            scene.put(member(f"g{gang}-{index}", f"g{gang}", 20), tell=False)
    scene.report()
    scene.bench.settle()
    assert scene.orders() == []
    scene.bench.facts(quota_of(260))
    scene.bench.settle()
    assert len(scene.orders()) == 260
    scene.bench.sound()
