"""Every reason the log can give has a scene that brings it about, and `why` tells it there, unlike any other.

The reasons are read from the events themselves: a new one without a scene fails here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect as mi

from kit import facts, nodes
from kit.scenario import Play
from muster.core import explain, telling
from muster.core.story import Story
from muster.events import decisions as d
from muster.events import effects, gangs
from muster.events.base import Cause, Event
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.registry import EVENT_TYPES
from muster.model.keys import Ref
from muster.model.placing import HostPort, NodeTerm, PodRules, PodTerm, Requirement, Spread, Taint
from muster.model.workload import PodSet, Wishes

Key = tuple[str, str]
"""(event tag or enum, value)"""

NO_REASONS = {"phase", "operator", "reclaim", "runtime", "action", "mode"}
"""Fields with a closed set of values that say what something is, not why."""
TOLD_OTHERWISE = {
    ("workload_refused", "unreadable"): "nobody decides it: the fact object_unreadable says it, see test_story",
    ("preemption_proposed", ""): "nothing is withheld",
    ("workload_finished", ""): "no outcome is known",
}
POD_GANGS = {"gang_held_back", "pods_released", "nodes_claim_ended"}
"""Of gangs of pods: their words are judged here, their scenes stand with the gangs."""


def literals(found: mi.Type, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """(path of the field, value) of every closed set of texts inside a type; trees of quota are not entered."""
    match found:
        case mi.LiteralType():
            yield from ((path, str(value)) for value in found.values)
        case mi.StructType() if len(path) < 5:
            for each in found.fields:
                yield from literals(each.type, (*path, each.name))
        case mi.UnionType():
            for each in found.types:
                yield from literals(each, path)
        case mi.VarTupleType():
            yield from literals(found.item_type, path)


def reasons() -> set[Key]:
    """Every reason there is; obstacles stand in several events, and count once."""
    found = set()
    for tag, kind in EVENT_TYPES.items():
        for path, value in literals(mi.type_info(kind), (tag,)):
            if path[-1] in NO_REASONS or path[1:2] in (("workload",), ("pod",)):
                continue
            if path[-1] == "code":
                found.add(("obstacle", value))
            elif tag == "effect_failed":
                found |= {(f"not_{action}", value) for action in ("resume", "suspend")}
            else:
                found.add((tag, value))
    return found


# --- scenes -------------------------------------------------------------------------------------------------------

TWO = (("a", 5), ("b", 3))
"""Leaves and what they are guaranteed of eight cores."""


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
        effect = EffectApplied(cause=Cause(order[0], 0), ref=job.ref, attempt=attempt, rv=rv, action="suspend")
        self.bench.append("actuator", "input", [effect])
        self._change(name, rv=rv, suspended=True, phase="suspending", settled=False, generation=job.generation + 1)
        self.settle()
        self.lines(f"settles {name}")

    def fails(self, name: str, action: str, reason: str) -> None:
        """The actuator cannot carry it out."""
        job = self.jobs[name]
        cause, attempt = self.admitted[job.ref.uid]
        failed = EffectFailed(
            cause=Cause(*cause), ref=job.ref, attempt=attempt, reason=reason, message="", action=action
        )
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
            scene.change("one", refusal="spec.x cannot be")
        case "held":
            scene.change("one", wishes=Wishes(hold=True, by="ann", reason="waits for data"))
        case "unbound":
            scene.tree_of(("elsewhere", 8))
    return scene, "video/one"


def refused(reason: str) -> tuple[Scene, str]:
    scene = Scene()
    scene.lines("synced", *([] if reason == "no_tree" else ["tree"]))
    if reason == "unbound":
        scene.lines("job nowhere/one")
        return scene, "nowhere/one"
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
    lines = ["job two", "job one", "starts one", "cluster one"]
    scene.lines(*([*lines, "tree", "synced"] if reason == "already_running" else ["tree", "synced", *lines]))
    return scene, "video/one"


def released(reason: str) -> tuple[Scene, str]:
    match reason:
        case "evicted":
            scene = claimed()
            scene.suspended("b/greedy")
            return scene, "b/greedy"
        case "timed_out":
            scene = timed_out()
            scene.suspended("a/one")
            return scene, "a/one"
        case "no_nodes":
            return beginning("placement pack", "node n cpu=2", "gang one head=4 workers=1x4"), "video/one"
    scene = beginning("job one")
    match reason:
        case "resume_failed":
            scene.lines("failed one refused a policy says no")
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


def timed_out() -> Scene:
    scene = Scene()
    scene.tree_of(*TWO, running_timeout="1m")
    scene.lines("synced", "job a/one cpu=5", "resumed a/one", "time +120s")
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
    scene = Scene()
    scene.tree_of(*TWO)
    scene.lines("synced", "job b/greedy cpu=8")
    scene.runs("b/greedy")
    scene.change("b/greedy", busy=True)
    scene.lines("job a/owed cpu=5")
    return scene, "a/owed"


def claim_ended(outcome: str) -> tuple[Scene, str]:
    scene = claimed()
    match outcome:
        case "gone":
            scene.lines("gone a/owed")
        case "changed":
            scene.lines("edit a/owed cpu=4")
        case "expired":
            scene.lines("time +86400s")
        case "victims_stay":
            scene.fails("b/greedy", "suspend", "refused")
    return scene, "a/owed"


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
    from muster.events.facts import WorkloadFinished

    scene = beginning("job one")
    scene.runs("one")
    scene.do(WorkloadFinished(ref=scene.jobs["one"].ref, outcome=outcome))
    return scene, "video/one"


SELF = (Requirement("app", "In", ("me",)),)
OBSTACLES: dict[str, tuple[PodRules, tuple[Event, ...]]] = {
    "insufficient": (PodRules(), (nodes.node("n", cpu=1),)),
    "unschedulable": (PodRules(), (nodes.node("n", schedulable=False),)),
    "taint": (PodRules(), (nodes.node("n", taints=(Taint("gpu", "yes"),)),)),
    "not_ready": (PodRules(), (nodes.node("n", ready=False),)),
    "node_affinity": (PodRules(node_labels={"disk": "ssd"}), (nodes.node("n"),)),
    "volume": (PodRules(volumes=((NodeTerm((Requirement("zone", "In", ("a",)),)),),)), (nodes.node("n"),)),
    "ports": (PodRules(ports=(HostPort(80),)), (nodes.node("n", cpu=8),)),
    "spread": (
        PodRules(labels={"app": "me"}, spread=(Spread("zone", 1, SELF),)),
        (nodes.node("n", cpu=8, labels={"zone": "a"}), nodes.node("m", cpu=1, labels={"zone": "b"})),
    ),
    "spread_label": (PodRules(labels={"app": "me"}, spread=(Spread("rack", 1, SELF),)), (nodes.node("n"),)),
    "affinity": (
        PodRules(together=(PodTerm("kubernetes.io/hostname", (Requirement("app", "In", ("them",)),)),)),
        (nodes.node("n"),),
    ),
    "anti_affinity": (
        PodRules(labels={"app": "me"}, apart=(PodTerm("kubernetes.io/hostname", SELF),)),
        (nodes.node("n", cpu=8),),
    ),
    "existing_anti_affinity": (PodRules(labels={"app": "me"}), (nodes.node("n", cpu=8),)),
    "unsupported": (PodRules(unsupported="a volume that is not bound yet"), (nodes.node("n"),)),
}


def obstacle(code: str) -> tuple[Scene, str]:
    scene, (rules, there) = beginning("placement pack"), OBSTACLES[code]
    scene.do(*there)
    if code == "existing_anti_affinity":
        from muster.events.facts import PodObserved
        from muster.model.workload import PodState

        scene.do(
            PodObserved(
                pod=PodState(
                    ref=Ref("Pod", "video", "alone", "pod-alone"),
                    rv=facts.next_rv(),
                    node="n",
                    running=True,
                    request={"cpu": 1000},
                    rules=PodRules(apart=(PodTerm("kubernetes.io/hostname", SELF),)),
                )
            )
        )
    sets = (PodSet("worker", 2, facts.vector(cpu=2), rules=rules),)
    scene.do(facts.seen(facts.job("one", pod_sets=sets, cpu=4, created=scene.bench.now - 60_000)))
    return scene, "video/one"


SCENES: dict[str, Callable[[str], tuple[Scene, str]]] = {
    "workload_dequeued": dequeued,
    "workload_refused": refused,
    "quota_denied": denied,
    "workload_adopted": adopted,
    "quota_released": released,
    "preemption_proposed": withheld,
    "reclaim_deferred": deferred,
    "claim_ended": claim_ended,
    "suspension_ordered": lambda _: (timed_out(), "a/one"),
    "places_released": places,
    "not_resume": not_done("resume"),
    "not_suspend": not_done("suspend"),
    "workload_finished": finished,
    "obstacle": obstacle,
}

WORDS: dict[str, Any] = {
    "workload_dequeued": explain.DEQUEUED,
    "workload_adopted": explain.ADOPTED,
    "quota_released": explain.RELEASED,
    "claim_ended": explain.CLAIM_ENDED,
    "places_released": explain.GIVEN_BACK,
    "not_resume": explain.NOT_RESUMED,
    "not_suspend": explain.NOT_SUSPENDED,
    "preemption_proposed": explain.WITHHELD,
    "gang_held_back": explain.HELD_BACK,
    "pods_released": explain.PODS_RELEASED,
    "nodes_claim_ended": explain.NODES_CLAIM_ENDED,
}


def says(event: Event, key: Key) -> bool:
    """Whether an event of the log gives this reason."""
    kind, value = key
    if kind == "obstacle":
        short = getattr(event, "shortage", None)
        return short is not None and any(each.code == value for each in short.obstacles)
    if kind.startswith("not_"):
        return isinstance(event, EffectFailed) and (f"not_{event.action}", event.reason) == key
    fields = ("reason", "outcome", "withheld")
    return event.__struct_config__.tag == kind and value in [getattr(event, name, None) for name in fields]


def told(key: Key) -> str:
    """What `why` says where the reason is given: the entry about that very event."""
    scene, job = SCENES[key[0]](key[1])
    story = Story(job)
    for stored in scene.bench.log:
        story.feed(stored)
    places_ = {
        (stored.seq, item)
        for stored in scene.bench.log
        for item, event in enumerate(stored.commit.events)
        if says(event, key)
    }
    assert places_, f"the scene does not lead to {key}: {[e for s in scene.bench.log[-4:] for e in s.commit.events]}"
    found = [each.entry for each in story.of(job).happenings if (each.entry.seq, each.entry.item) in places_]
    assert found, f"`why` says nothing of {key} at {places_}"
    return f"{found[0].word}: {found[0].text}"


ALL = sorted(reasons())
SCENIC = [key for key in ALL if key not in TOLD_OTHERWISE and key[0] not in POD_GANGS]


def test_the_reasons_are_found() -> None:
    assert len(ALL) > 60
    assert {kind for kind, _ in ALL} == SCENES.keys() | POD_GANGS, "a new closed set needs scenes, or words"
    assert TOLD_OTHERWISE.keys() <= set(ALL)
    assert {value for kind, value in ALL if kind == "obstacle"} == OBSTACLES.keys() == explain.OBSTACLES.keys()


@pytest.mark.parametrize("key", SCENIC, ids=": ".join)
def test_why_tells_every_reason_where_it_is_given(key: Key) -> None:
    text, words = told(key), WORDS.get(key[0], {}).get(key[1], "")
    assert words in text
    assert len(text) > 20


def plain(text: str) -> str:
    """A sentence without what differs between two scenes: numbers, names, quantities."""
    return re.sub(r"\b[a-z-]+/[a-z-]+(/[a-z-]+)*\b|\d+\S*", "…", text)


def test_no_two_reasons_read_the_same() -> None:
    said: dict[str, list[Key]] = {}
    for key in SCENIC:
        said.setdefault(plain(told(key)), []).append(key)
    for kind in POD_GANGS:
        for value, words in WORDS[kind].items():
            said.setdefault(f"{kind}: {words}", []).append((kind, value))
    assert {text: keys for text, keys in said.items() if len(keys) > 1} == {}


def test_the_words_of_pod_gangs_are_in_what_is_told() -> None:
    ref = Ref("Pod", "video", "p", "uid-p")
    for value, words in explain.HELD_BACK.items():
        assert words in telling.tell(gangs.GangHeldBack(cause=Cause(1, 0), gang="video/g", reason=value)).text
    for value, words in explain.PODS_RELEASED.items():
        pods = (gangs.PodPlace(ref, "n"),)
        assert words in telling.tell(gangs.PodsReleased(cause=Cause(1, 0), reason=value, pods=pods)).text
    for value, words in explain.NODES_CLAIM_ENDED.items():
        assert words in telling.tell(gangs.NodesClaimEnded(cause=Cause(1, 0), gang="video/g", outcome=value)).text
    assert msgspec.inspect.type_info(effects.EffectFailed)


def test_an_eviction_tells_whether_work_is_lost() -> None:
    from muster.events.facts import WorkloadStarted

    scene = Scene()
    scene.tree_of(*TWO)
    scene.lines("synced", "job b/small cpu=3", "time +5s", "job b/greedy cpu=5")
    scene.runs("b/greedy")
    scene.do(WorkloadStarted(ref=scene.jobs["b/greedy"].ref))
    scene.lines("time +120s", "job a/owed cpu=5")
    story = Story("b/greedy")
    for stored in scene.bench.log:
        story.feed(stored)
    evicted = next(each.entry.text for each in story.of("b/greedy").happenings if each.entry.word == "evicted")
    assert "job a/owed stays within the min of its queue root/a" in evicted
    assert evicted.endswith("It had run for 2 min: what it has not saved since is lost")
