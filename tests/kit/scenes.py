"""Scenes: plays that lead to one reason each, for whoever wants to hear what is told of it.

Each function takes the reason and returns the play, and the job that it is about.
"""

from __future__ import annotations

from collections.abc import Callable

from kit import facts, kai, nodes
from kit.clearings import halves
from kit.packed import borrowed_nodes, nodes_stay
from kit.scenario import Play
from muster.core.objects.kaiqueue import pod_group_name
from muster.core.objects.meta import KAI_QUEUE, QUOTA_NAME
from muster.events import decisions as d
from muster.events.base import Cause, Event
from muster.events.claims import ClaimOpened, PlanObjection, PlanStale
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.facts import (
    NodesRequestGone,
    NodesRequestObserved,
    PodGroupObserved,
    QueueObserved,
    WorkloadFinished,
)
from muster.events.system import PlacementChosen
from muster.model.gang import NATIVE, PodGroup, Verdict
from muster.model.keys import Ref
from muster.model.problem import problem
from muster.model.quota import WIDTHS_TO_AGE
from muster.model.workload import Wishes

TWO = (("a", 5), ("b", 3))
"""Leaves and what they are guaranteed of eight cores."""
WAITS_S = 17_280
"""How long a job waits before later work passes it: quota may be idle for it for a tenth of that."""


class Scene(Play):
    """A play with levers that scenarios in text have not."""

    def tree_of(self, *leaves: tuple[str, int], **rules: str) -> None:
        made = tuple(facts.node(name, {"cpu": least}, {"cpu": 8}, (name,)) for name, least in leaves)
        root = facts.node("root", {"cpu": 8}, {"cpu": 8}, children=made)
        self.do(facts.tree(root, rules={name.replace("_", "-"): text for name, text in rules.items()}))

    def do(self, *events: Event) -> None:
        self.bench.facts(*events)
        self.settle()

    def lines(self, *texts: str) -> None:
        for text in texts:
            self.line(text)
            self.settle()

    def take(self, *stages: str) -> None:
        """These decide, one after the other, and nobody else: in a live system the order is anybody's."""
        for name in stages:
            self.bench.step(name)

    def change(self, name: str, **changes: object) -> None:
        self._change(name, **changes)
        self.settle()

    def runs(self, name: str) -> None:
        """It was admitted, and comes to run."""
        self.lines(f"resumed {name}", f"runs {name}")

    def waits(self, seconds: int = WAITS_S) -> None:
        """Time passes, and others like them follow all that run: nothing has run for long."""
        self.lines(f"time +{seconds}s")
        charged = self.bench.states["quota_accountant"].ledger.charges
        for name, options in [*self.asked.items()]:
            if "." not in name and self.jobs[name].ref.uid in charged:
                asks = " ".join(f"{key}={value}" for key, value in options.items())
                self.lines(f"follow {name} times=1 {asks}")

    def passed(self, wide: int, by: str, cpu: int, run: str = "") -> None:
        """Jobs like ``by`` follow until quota is held for a waiting job of so many cores, or the job has aged."""
        held = len(self.bench.happened(ClaimOpened))
        for _ in range(-(-WIDTHS_TO_AGE * wide // cpu)):
            if len(self.bench.happened(ClaimOpened)) == held:
                self.lines(f"follow {by} cpu={cpu} times=1" + (f" run={run}" if run else ""))

    def read(self, words: str = "") -> None:
        """The actuator answers the newest look for a refusal of pods. ``words``: of the refuser; empty: none."""
        seq, item, look = next(
            (stored.seq, item, event)
            for stored in reversed(self.bench.log)
            for item, event in enumerate(stored.commit.events)
            if isinstance(event, d.PodsAwaited)
        )
        refusal = problem("", "pods_refused", said=words) if words else None
        cause = Cause(seq, item)
        effect = EffectApplied(cause=cause, ref=look.ref, attempt=look.attempt, action="read_refusal", problem=refusal)
        self.bench.append("actuator", "input", [effect])
        self.settle()

    def suspended(self, name: str) -> None:
        """The actuator suspends it, and nothing of it is left."""
        order = next(
            (stored.seq, event)
            for stored in reversed(self.bench.log)
            for event in stored.commit.events
            if isinstance(event, d.EvictionOrdered | d.SuspensionOrdered)
        )
        job, rv = self.jobs[name], facts.next_rv()
        attempt = order[1].victims[0].attempt if isinstance(order[1], d.EvictionOrdered) else order[1].attempt
        cause = Cause(order[0], 0)
        effect = EffectApplied(cause=cause, ref=job.ref, attempt=attempt, rv=rv, action="suspend")
        self.bench.append("actuator", "input", [effect])
        self._change(name, rv=rv, suspended=True, phase="suspending", settled=False, generation=job.generation + 1)
        self.settle()
        self.lines(f"settles {name}")

    def victims(self) -> list[str]:
        """namespace/name of those whom the newest order names."""
        return next(
            [each.ref.key for each in event.victims]
            for stored in reversed(self.bench.log)
            for event in stored.commit.events
            if isinstance(event, d.EvictionOrdered)
        )

    def fails(self, name: str, action: str, reason: str) -> None:
        """The actuator cannot carry it out."""
        job = self.jobs[name]
        cause, attempt = self.admitted[job.ref.uid]
        failed = EffectFailed(cause=Cause(*cause), ref=job.ref, attempt=attempt, reason=reason, action=action)
        self.bench.append("actuator", "input", [failed])
        self.settle()


def beginning(*lines: str) -> Scene:
    scene = Scene()
    scene.lines("tree", "synced", *lines)
    return scene


def claimed(**rules: str) -> Scene:
    """b uses all there is; a/owed stays within its guarantee, so b/greedy, the younger one, has to go."""
    scene = Scene()
    scene.tree_of(*TWO, **rules)
    scene.lines("synced", "job b/small cpu=3", "time +5s", "job b/greedy cpu=5")
    scene.runs("b/small")
    scene.runs("b/greedy")
    scene.lines("job a/owed cpu=5")
    return scene


def stale(reason: PlanObjection) -> tuple[Scene, str]:
    """A plan to make room that is not carried out: the answer that the accountant gives where others came between.

    That it gives it is shown by the properties of reclaim, of preemption and of KAI queues.
    """
    scene = beginning("job two", "job one")
    holder = "video/two" if reason == "held_for_age" else ""
    answer = PlanStale(cause=Cause(5, 0), ref=scene.jobs["one"].ref, attempt=1, reason=reason, holder=holder)
    scene.bench.append("quota_accountant", "decision", [answer])
    return scene, "video/one"


def outranked(**rules: str) -> Scene:
    """b uses all there is; b/urgent has a higher priority, so b/greedy, the younger one, gives way in its own queue."""
    scene = Scene()
    scene.tree_of(*TWO, preempt_lower_priority="true", **rules)
    scene.lines("synced", "job b/small cpu=3", "time +5s", "job b/greedy cpu=5")
    scene.runs("b/small")
    scene.runs("b/greedy")
    scene.lines("job b/urgent cpu=5 prio=10")
    return scene


def dequeued(reason: str) -> tuple[Scene, str]:
    scene = beginning("job two", "job one")
    match reason:
        case "gone":
            scene.lines("gone one")
        case "finished":
            scene.lines("finishes one")
        case "started_outside":
            scene.line("starts one")
            scene.take("queue_sorter")
            scene.settle()
        case "refused":
            scene.change("one", refusal=problem("spec.x", "keeps_its_cluster"))
        case "held":
            scene.change("one", wishes=Wishes(hold=True, by="ann", reason="waits for data"))
        case "unbound":
            scene.tree_of(("elsewhere", 8))
    return scene, "video/one"


MISNAMED = {"quota_missing": "nothing", "quota_has_children": "algorithm", "quota_not_unique": "devops"}
"""What a label may say that leads to no quota."""
MISLED = {
    "by_label": ("nowhere", {KAI_QUEUE: "team-a", QUOTA_NAME: "video"}),
    "by_namespace": ("video", {KAI_QUEUE: "team-a"}),
    "queue_missing": ("nowhere", {KAI_QUEUE: "team-x"}),
    "queue_disabled": ("nowhere", {KAI_QUEUE: "team-b"}),
    "queue_has_children": ("nowhere", {KAI_QUEUE: "all"}),
}
"""A namespace, and labels that lead to no KAI queue."""


def refused(reason: str) -> tuple[Scene, str]:
    scene = Scene()
    scene.lines("synced", *([] if reason == "no_tree" else ["tree"]))
    if reason in ("two_quotas", "queue_label_missing", "queue_unknown"):
        namespace, name = {"two_quotas": ("video", "team-a"), "queue_label_missing": ("nowhere", "")}.get(
            reason, ("nowhere", "team-x")
        )
        scene.do(kai.queue("team-a"), facts.seen(kai.work("one", name, namespace)))
        return scene, f"{namespace}/one"
    if reason == "set_aside":
        scene.lines("job one")
        for _ in range(3):
            scene.fails("one", "resume", "gone")
        return scene, "video/one"
    if reason in ("unbound", "namespace_unclaimed"):
        scene.lines("job nowhere/one")
        return scene, "nowhere/one"
    if reason in MISNAMED:
        scene.do(facts.seen(facts.job("one", "nowhere", labels={QUOTA_NAME: MISNAMED[reason]})))
        return scene, "nowhere/one"
    if reason in MISLED:
        namespace, labels = MISLED[reason]
        broken = kai.queue("team-b", "nothing")
        scene.do(kai.queue("all"), kai.queue("team-a", "all"), broken)
        scene.do(facts.seen(facts.job("one", namespace, labels=labels)))
        return scene, f"{namespace}/one"
    scene.lines("job two", "job one refusal=spec.x_cannot_be" if reason == "cannot_suspend" else "job one")
    if reason == "held":
        scene.change("one", wishes=Wishes(hold=True, by="ann", reason="waits for data"))
    return scene, "video/one"


def denied(reason: str) -> tuple[Scene, str]:
    if reason != "stale":
        return beginning("job two", f"job one cpu={12 if reason == 'insufficient_quota' else 30}"), "video/one"
    scene = beginning()
    scene.line("job one")
    scene.take("queue_sorter")
    scene.line("edit one cpu=2")
    scene.settle()
    return scene, "video/one"


def adopted(reason: str) -> tuple[Scene, str]:
    scene = Scene()
    if reason == "not_stopped":
        scene.lines("tree", "synced", "job two", "job one", "cluster one")
        return scene, "video/one"
    lines = ["job two", "job one", "starts one", "cluster one"]
    scene.lines(*([*lines, "tree", "synced"] if reason == "already_running" else ["tree", "synced", *lines]))
    return scene, "video/one"


def released(reason: str) -> tuple[Scene, str]:
    match reason:
        case "evicted":
            scene = claimed()
            scene.suspended("b/greedy")
            return scene, "b/greedy"
        case "preempted":
            scene = outranked()
            scene.suspended("b/greedy")
            return scene, "b/greedy"
        case "timed_out":
            scene = timed_out()
            scene.suspended("a/one")
            return scene, "a/one"
        case "moved":
            scene, play = Scene(), halves(moves=16)
            play.job("big", "a", 2)
            play.suspended("y")
            play.left("y")
            scene.bench = play.bench
            return scene, "default/y"
        case "stale":
            scene = stale_gang()
            scene.suspended("default/short")
            scene.do(*(facts.pod_gone("short", index, "default") for index in range(2)))
            scene.do(facts.cluster_gone("short", "default"))
            return scene, "default/short"
        case "no_nodes":
            return beginning("placement pack", "node n cpu=2", "gang one head=1 workers=4x1"), "video/one"
    scene = beginning("job one")
    match reason:
        case "resume_failed":
            scene.lines("failed one refused a policy says no")
        case "held" | "paused":
            scene = beginning()
            scene.line("job one")
            scene.take("queue_sorter", "quota_accountant")
            if reason == "held":
                scene.change("one", wishes=Wishes(hold=True, by="ann", reason="waits for data"))
            else:
                ref = Ref("Queue", "kube-queue", "q", "queue-q")
                scene.do(
                    QueueObserved(ref=ref, rv=facts.next_rv(), path="root/algorithm/video", paused=("admissions",))
                )
        case "superseded":
            scene = beginning()
            scene.line("job one")
            scene.take("queue_sorter", "quota_accountant")
            scene.line("edit one cpu=2")
            scene.take("queue_sorter", "quota_accountant")
            scene.settle()
        case "suspended_outside":
            scene.runs("one")
            scene.lines("suspends one", "settles one")
        case "finished" | "gone":
            scene.lines("resumed one", "cluster one", "runs one", "finishes one", "cluster-gone one")
            if reason == "gone":
                scene = beginning("job one", "resumed one", "cluster one", "runs one", "gone one", "cluster-gone one")
    return scene, "video/one"


def stale_gang() -> Scene:
    """A gang of a KAI queue that has lost one of its two pods for longer than a minute."""
    scene = Scene()
    scene.lines("synced")
    one = kai.work("short", "team-a", cpu=3)
    scene.do(kai.queue("team-a"), nodes.node("n1", cpu=64, memory=256), facts.seen(one))
    scene.jobs["default/short"] = one
    scene.lines("resumed default/short")
    scene.do(facts.cluster("short", "default"))
    for index in range(3):
        labels = {"ray.io/group": "small-group"} if index else {"ray.io/node-type": "head"}
        scene.do(facts.pod("short", index, "default", node="n1", labels=labels))
    scene.do(facts.pod_gone("short", 2, "default"))
    scene.lines("time +61s")
    return scene


def timed_out(limit: str = "running_timeout") -> Scene:
    scene = Scene()
    scene.tree_of(*TWO, **{limit: "1m"})
    scene.lines("synced", "job a/one cpu=5", "resumed a/one", "time +120s")
    return scene


def unschedulable() -> Scene:
    """What kube-scheduler says of the gang of a job, where it is the one that places them."""
    scene = Scene()
    scene.bench.append("gang_admitter", "input", [PlacementChosen(mode="native")])
    scene.tree_of(*TWO)
    scene.lines("synced", "job a/one cpu=5", "resumed a/one")
    owner = scene.bench.happened(d.GangAdmitted)[-1]
    ref = Ref(NATIVE, owner.ref.namespace, pod_group_name(owner.ref), "uid-pg-one")
    verdict = Verdict(False, "Unschedulable", "0/3 nodes are available")
    group = PodGroup(ref=ref, rv=facts.next_rv(), minimum=3, owner_uid=owner.ref.uid, attempt=1, verdict=verdict)
    scene.do(PodGroupObserved(pod_group=group))
    scene.lines("time +10s")
    return scene


def withheld(_reason: str) -> tuple[Scene, str]:
    scene = Scene()
    for name, cpu in (("b/small", 3), ("b/greedy", 5)):
        scene.lines(f"job {name} cpu={cpu}", f"runs {name}", f"cluster {name}")
    scene.tree_of(*TWO)
    scene.lines("synced", "job a/owed cpu=5")
    return scene, "a/owed"


def deferred(reason: str) -> tuple[Scene, str]:
    if reason == "too_young":
        return claimed(min_run="10m"), "a/owed"
    if reason == "grace":
        return claimed(reclaim_grace="10m"), "a/owed"
    if reason == "evictions_paused":
        return claimed(paused="evictions"), "a/owed"
    if reason == "lower_too_young":
        return outranked(min_run="10m"), "b/urgent"
    if reason == "lower_paused":
        return outranked(paused="evictions"), "b/urgent"
    if reason == "nodes_stay":
        return nodes_stay(Scene()), "a/wide"
    if reason in ("lower_stays", "no_place", "search_ended"):
        low = reason == "lower_stays"
        return lower_is_not_enough() if low else (borrowed_nodes(Scene(), few=reason == "no_place"), "a/wide")
    scene = Scene()
    scene.tree_of(*TWO)
    scene.lines("synced", "job b/greedy cpu=8")
    scene.runs("b/greedy")
    scene.change("b/greedy", busy=True)
    scene.lines("job a/owed cpu=5")
    return scene, "a/owed"


def lower_is_not_enough() -> tuple[Scene, str]:
    """a would be within its min without a/low, and b/greedy, who has the rest, cannot be suspended."""
    scene = Scene()
    scene.tree_of(*TWO, preempt_lower_priority="true")
    scene.lines("synced", "job a/low cpu=2", "job b/greedy cpu=6")
    scene.runs("a/low")
    scene.runs("b/greedy")
    scene.change("b/greedy", busy=True)
    scene.lines("job a/urgent cpu=5 prio=10")
    return scene, "a/urgent"


def places(reason: str) -> tuple[Scene, str]:
    scene = beginning("placement pack hold=60", "node n cpu=8", "gang one head=4 workers=1x4")
    scene.lines("node-gone n") if reason == "node_gone" else scene.lines("resumed one", "time +120s")
    return scene, "video/one"


def not_done(action: str) -> Callable[[str], tuple[Scene, str]]:
    def scene_of(reason: str) -> tuple[Scene, str]:
        scene = beginning("job one")
        if action == "suspend":
            scene.runs("one")
        scene.fails("one", action, reason)
        return scene, "video/one"

    return scene_of


def finished(outcome: str) -> tuple[Scene, str]:
    scene = beginning("job one")
    scene.runs("one")
    scene.do(WorkloadFinished(ref=scene.jobs["one"].ref, outcome=outcome))
    return scene, "video/one"


def pool_refused(why: str) -> tuple[Scene, str]:
    pool, *more = {
        "full": ("pool p max=0 cpu=8",),
        "unsuitable": ("pool p max=9 cpu=1",),
        "needs_pods": ("pool p max=9 cpu=8 class=unschedulable-pods",),
        "not_served": ("pool p max=9 cpu=8", "unserved"),
        "in_vain": ("pool p max=9 cpu=8 wait=60",),
    }[why]
    scene = beginning("placement pack", "node n cpu=2", pool, *more, "gang one head=4 workers=1x4")
    if why == "in_vain":
        scene.lines("time +70s")
    return scene, "video/one"


def nodes_withdrawn(reason: str) -> tuple[Scene, str]:
    scene = beginning("placement pack", "node n cpu=2", "pool p max=9 cpu=8 wait=60", "gang one head=4 workers=1x4")
    scene.lines(
        *{
            "met": ("node m cpu=8 pool=p",),
            "gone": ("gone one",),
            "changed": ("edit one cpu=3",),
            "expired": ("time +70s",),
            "failed": ("answer one failed out of stock",),
            "lapsed": ("answer one lapsed given to others",),
            "deleted": ("answer one accepted",),
        }[reason]
    )
    if reason == "deleted":
        seen = (event for stored in scene.bench.log for event in stored.commit.events)
        ref = next(event.ref for event in seen if isinstance(event, NodesRequestObserved))
        scene.do(NodesRequestGone(ref=ref, rv=facts.next_rv()))
    return scene, "video/one"
