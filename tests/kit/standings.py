"""Scenes that lead to every standing a job can have: who reads one must say the same as all others."""

from __future__ import annotations

from collections.abc import Callable

from kit import claimscenes, facts, scenes
from kit.overuse import overuse
from kit.scenes import TWO, Scene, beginning, claimed, outranked, stale_gang, timed_out
from kit.words import odd
from muster.events.facts import ObjectUnreadable, QueueObserved
from muster.events.system import LogNearlyFull
from muster.model.keys import Ref
from muster.model.podtrouble import PodCode, PodTrouble
from muster.told.codes.codetable import REFUSED


def after(*lines: str) -> Callable[[], tuple[Scene, str]]:
    return lambda: (beginning(*lines), "video/one")


def stepped(*stages: str) -> Callable[[], tuple[Scene, str]]:
    """The job has come, and only these stages have decided."""

    def scene() -> tuple[Scene, str]:
        made = beginning()
        made.line("job one")
        made.take(*stages)
        return made, "video/one"

    return scene


def of(make: Callable[[str], tuple[Scene, str]], reason: str) -> Callable[[], tuple[Scene, str]]:
    return lambda: make(reason)


def firm(cpu: int, *, first: int = 0) -> tuple[Scene, str]:
    """A job that is not preemptiblewas within the min of its queue: cpu 12."""
    scene = beginning()
    label = {"quota.scheduling.alibabacloud.com/preemptible": "false"}
    for name, amount in (("first", first), ("one", cpu)):
        if amount:
            scene.do(facts.seen(facts.job(name, cpu=amount, labels=label, created=scene.bench.now - 60_000)))
    return scene, "video/one"


def held_for_another() -> tuple[Scene, str]:
    """Two have to go for a/owed; one has left, and what it gave back is not for b/late."""
    scene = Scene()
    scene.tree_of(*TWO)
    scene.lines("synced")
    for name, cpu in (("b/x", 2), ("b/y", 3), ("b/z", 3)):
        scene.lines(f"job {name} cpu={cpu}")
        scene.runs(name)
    scene.lines("job a/owed cpu=5")
    scene.suspended(scene.victims()[0])
    scene.lines("job b/late cpu=2")
    return scene, "b/late"


def weighed() -> tuple[Scene, str]:
    scene = Scene()
    scene.tree_of(*TWO, runtime="weight")
    scene.lines("synced", "job a/other cpu=5", "job b/one cpu=5")
    return scene, "b/one"


def room_again() -> tuple[Scene, str]:
    """What it waits for was given back, and it has not been tried again yet."""
    scene = beginning("job two", "job one", "resumed two", "cluster two", "runs two", "finishes two")
    scene.line("cluster-gone two")
    scene.take("quota_accountant")
    return scene, "video/one"


def paused() -> tuple[Scene, str]:
    scene = Scene()
    scene.tree_of(*TWO, paused="admissions", paused_by="ann", paused_reason="maintenance")
    scene.lines("synced", "job a/one cpu=5")
    return scene, "a/one"


def behind_the_head() -> tuple[Scene, str]:
    """The head asks for more than is free, and nobody passes it."""
    scene = Scene()
    scene.tree_of(*TWO)
    scene.do(
        QueueObserved(ref=Ref("Queue", "kube-queue", "a", "queue-a"), rv=facts.next_rv(), path="root/a", policy="Block")
    )
    scene.lines("synced", "job b/x cpu=4", "job a/big cpu=5", "job a/one cpu=1")
    return scene, "a/one"


def suspended_again() -> tuple[Scene, str]:
    scene = timed_out()
    scene.suspended("a/one")
    return scene, "a/one"


def evicted_and_waiting() -> tuple[Scene, str]:
    scene = claimed()
    scene.suspended("b/greedy")
    return scene, "b/greedy"


def nearly_full() -> tuple[Scene, str]:
    scene = beginning("job two", "job one")
    scene.bench.append("quota_accountant", "input", [LogNearlyFull(percent=95)])
    return scene, "video/one"


def unreadable() -> tuple[Scene, str]:
    scene = beginning()
    scene.do(
        ObjectUnreadable(ref=Ref("RayJob", "video", "one", "uid-odd"), rv=9_999_999, problem=odd("spec.x: missing"))
    )
    return scene, "video/one"


def unsynced() -> tuple[Scene, str]:
    scene = Scene()
    scene.lines("tree", "job one")
    return scene, "video/one"


def outside(name: str) -> Callable[[], tuple[Scene, str]]:
    return lambda: (beginning("job two", f"job {name}", f"starts {name}"), name if "/" in name else f"video/{name}")


def unqueued() -> tuple[Scene, str]:
    """It was never suspended, and does not run yet."""
    scene = beginning()
    scene.do(facts.seen(facts.job("one", suspended=False, created=scene.bench.now)))
    return scene, "video/one"


def held_up(code: PodCode, *lines: str, over: bool = False) -> tuple[Scene, str]:
    """A pod of it does not run."""
    scene = beginning("job one", "resumed one", "cluster one")
    trouble = PodTrouble(code, container="main", exit_code=1)
    scene.do(facts.pod("one", 0, running=False, over=over, trouble=trouble))
    scene.lines(*lines)
    return scene, "video/one"


def seen_only() -> tuple[Scene, str]:
    scene = beginning()
    scene.line("job one")
    return scene, "video/one"


GANG = ("placement pack grow=600", "node n cpu=2", "gang one head=4 workers=1x4")
RUN = ("resumed one", "cluster one", "pod one 0", "runs one")

SCENES: dict[str, Callable[[], tuple[Scene, str]]] = {
    **{code: of(scenes.refused, reason) for reason, code in REFUSED.items()},
    "Seen": seen_only,
    "BeingTried": stepped("queue_sorter"),
    "Reserved": stepped("queue_sorter", "quota_accountant"),
    "Admitted": after("job one"),
    "Starting": after("job one", "resumed one", "cluster one", "pod one 0"),
    "Starting, held up": lambda: held_up("Unschedulable"),
    "Running, held up": lambda: held_up("CrashLoopBackOff", "runs one"),
    "Finished, its pod failed": lambda: held_up("OOMKilled", "finishes one failed", "cluster-gone one", over=True),
    "Running": after("job one", *RUN),
    "Running, beyond its grant": after("job one", *RUN, "cluster one cpu=90"),
    "Reclaimed": lambda: (claimed(), "b/greedy"),
    "Preempted": lambda: (outranked(), "b/greedy"),
    "StaleGang": lambda: (stale_gang(), "default/short"),
    "Overuse": overuse,
    "RunningTimeout": lambda: (timed_out(), "a/one"),
    "RunningTimeout, and resting": suspended_again,
    "Finished": after("job one", *RUN, "finishes one", "cluster-gone one", "pod-gone one 0"),
    "FinishedStillCharged": after("job one", *RUN, "finishes one", "cluster-gone one"),
    "DeletedStillCharged": after("job one", *RUN, "gone one"),
    "Gone, from its queue": after("job two", "job one", "gone one"),
    "Gone, refused": after("job one refusal=spec.x_cannot_be", "gone one"),
    "Gone, released": of(scenes.released, "gone"),
    "Unreadable": unreadable,
    "SuspendedOutside": after("job one", *RUN, "suspends one"),
    "Adopted, ran already": of(scenes.adopted, "already_running"),
    "Adopted, around the queue": of(scenes.adopted, "bypassed"),
    "Adopted, not stopped": of(scenes.adopted, "not_stopped"),
    "ResumeFailed": after("job one", "failed one refused a policy says no"),
    "Held": of(scenes.dequeued, "held"),
    "Unmanaged": outside("nowhere/one"),
    "NotSuspended": unqueued,
    "InsufficientQuota": of(scenes.denied, "insufficient_quota"),
    "InsufficientQuota, evicted": evicted_and_waiting,
    "InsufficientQuota, owed and nobody may go": of(scenes.deferred, "nothing_evictable"),
    "InsufficientQuota, owed and too young": of(scenes.deferred, "too_young"),
    "InsufficientQuota, the claim has ended": of(claimscenes.claim_ended, "expired"),
    "InsufficientQuota, reclaim is off": of(scenes.withheld, "reclaim_disabled"),
    "ExceedsMaxQuota": of(scenes.denied, "exceeds_limit"),
    "InsufficientMinQuota": lambda: firm(5, first=8),
    "ExceedsMinQuota": lambda: firm(13),
    "InsufficientRuntimeQuota": weighed,
    "WaitingForClaim": lambda: (claimed(), "a/owed"),
    "QuotaHeld": held_for_another,
    "Queued": room_again,
    "Paused": paused,
    "BehindHead": behind_the_head,
    "NotSynced": unsynced,
    "LogNearlyFull": nearly_full,
    "AwaitingNodes": after(*GANG),
    "GangUnschedulable": of(scenes.released, "no_nodes"),
    "FitsNoNode": after("placement pack", "node n cpu=2", "gang one head=4 workers=1x4"),
    "WouldBeAdmitted": after("job one"),
}
"""What a job stands at, and how it came there: the code, and after a comma what tells it from others of that code."""
