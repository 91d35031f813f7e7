"""Scenes of gangs of pods: plays that lead to one reason each, as `kit.scenes` has them for jobs.

Each function takes the reason and returns the play, and the gang (or the pod of none) that it is about.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from msgspec.structs import replace

from kit import facts, nodes
from kit.podgangs import SIGS, Scene, member, pod_group
from muster.core.gang.nodeclaims import LEAST_MS
from muster.core.gang.podunits import BROKEN_MS, GRACE_MS, STARVED_MS
from muster.events.effects import EffectFailed
from muster.events.facts import NodeGone, PodGroupObserved
from muster.events.gangs import HeldBackReason, NodesClaimed, held_as
from muster.model.keys import Ref
from muster.model.workload import PodState

TRAIN = "video/train"
ROUND_MS = 10_000


class Play(Scene):
    """A scene in few words."""

    def node(self, name: str, cpu: int) -> None:
        self.bench.facts(nodes.node(name, cpu=cpu))

    def loses(self, node: str) -> None:
        self.bench.facts(NodeGone(ref=Ref("Node", "", node, f"uid-{node}"), rv=facts.next_rv()))
        self.bench.settle()

    def gang(self, name: str, count: int, minimum: int = 0, *, cpu: int = 1, **fields: object) -> None:
        least = minimum or count
        self.add(*(member(f"{name}-{n}", name, least, cpu=cpu, **fields) for n in range(count)))  # type: ignore[arg-type]

    def add(self, *pods: PodState) -> None:
        """They come, and whatever is due for them is decided and bound."""
        for pod in pods:
            self.put(pod)
        self.settle()

    def decided(self, *pods: PodState) -> None:
        """They come and have their places, and nobody binds them yet."""
        for pod in pods:
            self.put(pod)
        self.bench.settle()

    def passes(self, ms: int) -> None:
        self.bench.pass_time(ms)
        self.settle()

    def ends(self, name: str, *, succeeded: bool = True) -> None:
        self.put(replace(self.pods[f"uid-video-{name}"], over=True, succeeded=succeeded))
        self.settle()

    def goes(self, name: str) -> None:
        self.delete(f"uid-video-{name}")
        self.settle()

    def runs(self) -> None:
        """Everything that is bound has begun to run."""
        for pod in list(self.pods.values()):
            if pod.node:
                self.put(replace(pod, running=True))
        self.settle()


def with_room(cpu: int = 9) -> Play:
    play = Play()
    play.node("n", cpu)
    return play


def of(name: str, count: int, *, cpu: int = 1) -> list[PodState]:
    return [member(f"{name}-{n}", name, count, cpu=cpu) for n in range(count)]


def held_back(reason: str) -> tuple[Play, str]:
    play = with_room(2 if reason in ("no_nodes", "timed_out") else 9)
    match reason:
        case "refused":
            play.add(member("train-0", "train", labels={f"{SIGS}/min-available": "x"}))
        case "other_scheduler":
            play.gang("train", 2, scheduler="default-scheduler")
            play.passes(GRACE_MS + 1)
        case "priority_clash":
            play.decided(member("train-0", "train", 2, priority=5), member("train-1", "train", 2, priority=7))
        case "gated":
            play.gang("train", 2, gated=True)
        case "too_few_pods":
            play.gang("train", 2, 3)
            play.passes(GRACE_MS + 1)
        case "group_incomplete":
            play.gang("train", 2, marks={f"{SIGS}/groups": '["video/train", "video/other"]'})
            play.passes(GRACE_MS + 1)
        case "no_quota":
            play.bench.facts(facts.tree())
            play.node("large", 20)
            play.gang("train", 3, cpu=5)
        case "no_nodes" | "timed_out":
            play.bench.facts(PodGroupObserved(pod_group=pod_group("train", 3, timeout_s=ROUND_MS // 1000)))
            play.gang("train", 3)
            if reason == "timed_out":
                play.passes(ROUND_MS)
        case "gave_way" | "starved":
            for one, other in zip(of("other", 5), of("train", 5), strict=True):
                play.put(one)
                play.put(other)
            play.settle()
            if reason == "starved":
                play.passes(STARVED_MS + 1)
        case "bind_refused":
            play.decided(*of("train", 2))
            play.bind(play.orders()[0], refuse="a policy says no")
            play.bench.settle()
        case "broken":
            play.gang("train", 3)
            play.ends("train-0", succeeded=False)
            play.goes("train-1")
            play.passes(BROKEN_MS)
    return play, TRAIN


def pods_released(reason: str) -> tuple[Play, str]:
    play = with_room(3)
    play.decided(*of("train", 3))
    match reason:
        case "node_gone":
            play.loses("n")
        case "not_bound":
            play.bench.pass_time(60_000)
        case "no_room":
            taker = PodState(ref=Ref("Pod", "other", "taker", "uid-taker"), rv=0, node="n", request=facts.vector(cpu=1))
            play.put(taker)
            play.bench.settle()
    return play, TRAIN


def claimed(*before: PodState) -> Play:
    """Two nodes full of pods that will leave some day; so much has passed the gang that it claims both."""
    play = Play()
    play.add(*before)
    play.passes(1_000)
    for number in range(2):
        play.node(f"n{number}", 4)
        play.add(member(f"small-{number}", cpu=4))
    play.gang("train", 2, cpu=4)
    play.passed(sum(pod.request["cpu"] for pod in before) // 1_000 or 8)
    return play


def claim_ended(outcome: str) -> tuple[Play, str]:
    play = claimed(*(of("elder", 2, cpu=8) if outcome == "yielded" else ()))
    match outcome:
        case "yielded":
            # Somebody who has waited longer could not claim: no nodes were large enough for it until now, and one of
            # the two that are has been claimed.
            claims = [e for stored in play.bench.log for e in stored.commit.events if isinstance(e, NodesClaimed)]
            play.node(claims[0].places[0].node, 8)
            where = "large-0"
            ref = Ref("Pod", "other", f"on-{where}", f"uid-on-{where}")
            play.put(PodState(ref=ref, rv=0, node=where, owner_uid="a-job", request=facts.vector(cpu=8)))
            play.node(where, 8)
            play.passes(1)
        case "placed":
            play.ends("small-0")
            play.ends("small-1")
        case "gone":
            play.goes("train-0")
            play.goes("train-1")
        case "expired":
            play.passes(LEAST_MS)
        case "changed":
            claims = [e for stored in play.bench.log for e in stored.commit.events if isinstance(e, NodesClaimed)]
            play.loses(claims[0].places[0].node)
    return play, TRAIN


def not_bound(reason: str) -> tuple[Play, str]:
    """The API server, or the state of the pod there, keeps a pod from its node."""
    play = with_room()
    play.decided(*of("train", 2))
    order = play.orders()[0]
    failed = EffectFailed(
        cause=order.cause,
        ref=order.ref,
        attempt=0,
        reason=reason,
        action="bind",  # type: ignore[arg-type]
    )
    play.bench.append("actuator", "input", [failed])
    play.bench.settle()
    return play, TRAIN


# --- where a gang stands ------------------------------------------------------------------------------------------


def standing(code: str) -> tuple[Play, str]:
    play = with_room()
    match code:
        case "Waiting":
            play.put(member("train-0", "train", 2))
        case "OtherScheduler":
            play.gang("train", 1, 2, scheduler="default-scheduler")
        case "KubeScheduler":
            play.gang("train", 1, 2, scheduler="default-scheduler", group="train")
        case "Gone":
            play.gang("train", 1)
            play.goes("train-0")
        case "Starting":
            play.decided(*of("train", 2))
            play.bind(play.orders()[0])
        case "Bound":
            play.gang("train", 2)
        case "Running" | "Finished" | "Failed":
            play.gang("train", 2)
            play.runs()
            for number in range(2) if code != "Running" else ():
                play.ends(f"train-{number}", succeeded=code == "Finished")
        case _:
            raise AssertionError(f"no scene leads to {code}")
    return play, TRAIN


def alone(reason: str) -> tuple[Play, str]:
    """The same of a pod of no gang."""
    play = with_room()
    match reason:
        case "gated":
            play.add(member("single", gated=True))
        case "no_nodes":
            play.add(member("single", cpu=50))
        case "bind_refused":
            play.decided(member("single"))
            play.bind(play.orders()[0], refuse="a policy says no")
            play.bench.settle()
        case _:
            raise AssertionError(f"no pod alone waits for {reason}")
    return play, "video/single"


def _of(reason: str) -> Callable[[], tuple[Play, str]]:
    return lambda: held_back(reason)


HELD: dict[str, Callable[[], tuple[Play, str]]] = {
    **{f"{held_as(reason)}, {reason}": _of(reason) for reason in get_args(HeldBackReason)},
    "Waits": lambda: alone("gated"),
    "FailedScheduling": lambda: alone("no_nodes"),
    "BindRefused": lambda: alone("bind_refused"),
}
"""What a gang, or a pod of none, stands at while it is held back."""
