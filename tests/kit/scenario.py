"""Scenarios: text files of input lines, ``----``, and the decisions that must follow, word for word.

A block is one or more input lines; everything a block sets off stands below its ``----``. ``MUSTER_TEST_REWRITE=1``
writes what happened into the file: commit such a diff only if you can say why each line changed.

Input lines (names without a slash are in namespace ``video``):

    synced                              every required kind has been listed
    tree [T0|none|ack2] [profile=full RULE=TEXT]   a quota tree is applied, or deleted; annotations muster.dev/RULE
    job NAME [cpu=4 memory=4G gpu=1] [prio=N] [class=NAME] [at=+MS] [run=2h]    a suspended RayJob appears
    edit NAME cpu=8 ...                 its spec is edited (a new generation)
    resumed NAME | failed NAME REASON   the actuator's effect
    evicted NAME                        the actuator suspends who was ordered to leave
    runs NAME | finishes NAME [OUTCOME] | suspends NAME [by=MANAGER] | settles NAME | starts NAME
    names NAME CHILD                    its status names the RayCluster it runs through
    cluster NAME [cpu=8 ...] | cluster-gone NAME | pod NAME N [cpu=1 ...] | pod-gone NAME N | gone NAME
    class NAME VALUE                    a PriorityClass
    placement off|pack|spread [hold=600 grow=0]   how gangs are placed; seconds
    node NAME [cpu=4 memory=16 gpu=1 pods=110 taint=KEY:VALUE zone=Z cordoned not-ready]    a node, memory in GiB
    node-gone NAME
    pool NAME max=2 [cpu=4 memory=16 gpu=1 taint=KEY:VALUE wait=900 class=NAME]   a node pool, with nodes `pool=NAME`
    pools-gone                          no node pool is declared any more
    unserved                            the cluster knows no ProvisioningRequests
    answer JOB PHASE [TEXT]             the autoscaler's word on the request that is open for a job or a gang
    foreign NAME node=NODE cpu=2 [gpu=1]    a pod of somebody else on a node; foreign-gone NAME
    alone NAME cpu=2 [node=NODE over]   a pod of no job that names us; alone-gone NAME
    gang NAME head=CPU workers=NxCPU [gpu=PER-WORKER at=+MS]   a suspended RayJob by its pods
    follow NAME times=N cpu=4 ... | head=CPU workers=NxCPU    jobs, or gangs, run in its place one after the other
    member JOB SET N node=NODE          a pod of an admitted gang comes up on a node; member-gone JOB SET N
    log-nearly-full                     the log has little room left
    time +5s                            time passes
"""

from __future__ import annotations

import os
from pathlib import Path

from kit import facts, nodes
from kit.bench import Bench
from kit.words import in_words, odd
from muster.core.actuation.orders import said
from muster.core.objects.meta import RUN_TIME
from muster.events.base import Cause, Event
from muster.events.charges import ChargeChanged
from muster.events.claims import ClaimEnded, ClaimOpened
from muster.events.decisions import (
    CandidatesProposed,
    EvictionOrdered,
    GangAdmitted,
    GangAwaitingNodes,
    GangDeferred,
    PlacesFound,
    PlacesReleased,
    PodsAwaited,
    PreemptionProposed,
    QuotaDenied,
    QuotaReleased,
    QuotaReserved,
    QuotaTreeAccepted,
    QuotaTreeRejected,
    QuotaTreeRemoved,
    ReclaimDeferred,
    SuspensionRecorded,
    WorkloadAdopted,
    WorkloadDequeued,
    WorkloadQueued,
    WorkloadRefused,
)
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.facts import (
    NodeGone,
    NodePoolsGone,
    NodesRequestObserved,
    PodGone,
    PodObserved,
    PriorityClassObserved,
    Synced,
)
from muster.events.gangs import NodesClaimed, NodesClaimEnded
from muster.events.growing import NodesRequested, NodesRequestWithdrawn
from muster.events.system import LogNearlyFull, PlacementChosen
from muster.model.keys import Ref
from muster.model.placing import Taint
from muster.model.pools import NodePool
from muster.model.resources import format_vector, summed
from muster.model.workload import PodSet, PodState, Workload
from muster.told.wording import events, explain, nodewords
from muster.told.wording.explain import waiting_for_quota
from muster.told.wording.reasons import ADOPTED, refused

REWRITE = "MUSTER_TEST_REWRITE"


class Play:
    """One scenario being played."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.jobs: dict[str, Workload] = {}
        self.asked: dict[str, dict[str, str]] = {}
        """job -> the options of its line"""
        self.pools: dict[str, NodePool] = {}

    def line(self, text: str) -> None:
        """Carry out one input line."""
        verb, *words = text.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        method = getattr(self, f"_{verb.replace('-', '_')}", None)
        assert method is not None, f"no input line begins with {verb!r}"
        method(names, options)

    def settle(self) -> list[str]:
        """What the stages decide now, as text."""
        return [line for event in self.bench.settle() if (line := tell(event))]

    @property
    def admitted(self) -> dict[str, tuple[tuple[int, int], int]]:
        """uid -> (position in the log, attempt) of its newest admission"""
        return {
            event.ref.uid: ((stored.seq, item), event.attempt)
            for stored in self.bench.log
            for item, event in enumerate(stored.commit.events)
            if isinstance(event, GangAdmitted)
        }

    # --- input lines ------------------------------------------------------------------------------------------

    def _synced(self, _names: list[str], _options: dict[str, str]) -> None:
        self.bench.synced()

    def _tree(self, names: list[str], options: dict[str, str]) -> None:
        which = names[0] if names else "T0"
        if which == "none":
            self.bench.facts(facts.tree_gone())
        else:
            rules = {name: text for name, text in options.items() if name != "profile"}
            self.bench.facts(facts.tree(TREES[which](), profile=options.get("profile", ""), rules=rules))

    def _log_nearly_full(self, _names: list[str], _options: dict[str, str]) -> None:
        self.bench.append("quota_accountant", "input", [LogNearlyFull(percent=95)])

    def _class(self, names: list[str], _options: dict[str, str]) -> None:
        ref = Ref("PriorityClass", "", names[0], f"class-{names[0]}")
        self.bench.facts(PriorityClassObserved(ref=ref, rv=facts.next_rv(), value=int(names[1])))

    def _job(self, names: list[str], options: dict[str, str]) -> None:
        self.asked[names[0]] = options
        namespace, _, name = names[0].rpartition("/")
        changes: dict[str, object] = {k: v for k, v in options.items() if k in ("cpu", "memory", "gpu")}
        if "prio" in options:
            changes["priority"] = int(options["prio"])
        if "class" in options:
            changes["priority_class"] = options["class"]
        if "at" in options:
            changes["queued_at"] = self.bench.now - 60_000 + int(options["at"])
        if "run" in options:
            changes["labels"] = {RUN_TIME: options["run"]}
        if "refusal" in options:
            changes["refusal"] = odd(options["refusal"].replace("_", " "))
        changes["created"] = self.bench.now - 60_000
        self.jobs[names[0]] = job = facts.job(name, namespace or "video", **changes)
        self.bench.facts(facts.seen(job))

    def _change(self, name: str, **changes: object) -> None:
        fact = facts.seen(self.jobs[name], **changes)
        self.jobs[name] = fact.workload
        self.bench.facts(fact)

    def _edit(self, names: list[str], options: dict[str, str]) -> None:
        need = facts.vector(**options)
        generation = self.jobs[names[0]].generation + 1
        self._change(names[0], need={"ack": need, "full": need}, generation=generation)

    def _resumed(self, names: list[str], _options: dict[str, str]) -> None:
        job = self.jobs[names[0]]
        cause, attempt = self.admitted[job.ref.uid]
        rv = facts.next_rv()
        effect = EffectApplied(cause=cause, ref=job.ref, attempt=attempt, rv=rv)
        self.bench.append("actuator", "input", [effect])
        self._change(names[0], rv=rv, suspended=False, phase="starting", settled=False, generation=job.generation + 1)

    def _failed(self, names: list[str], _options: dict[str, str]) -> None:
        job = self.jobs[names[0]]
        cause, attempt = self.admitted[job.ref.uid]
        effect = EffectFailed(
            cause=cause, ref=job.ref, attempt=attempt, reason=names[1], problem=said(" ".join(names[2:]))
        )
        self.bench.append("actuator", "input", [effect])

    def _evicted(self, names: list[str], _options: dict[str, str]) -> None:
        job = self.jobs[names[0]]
        seq, item, attempt = next(
            (stored.seq, item, victim.attempt)
            for stored in reversed(self.bench.log)
            for item, event in enumerate(stored.commit.events)
            if isinstance(event, EvictionOrdered)
            for victim in event.victims
            if victim.ref == job.ref
        )
        rv = facts.next_rv()
        effect = EffectApplied(cause=Cause(seq, item), ref=job.ref, attempt=attempt, rv=rv, action="suspend")
        self.bench.append("actuator", "input", [effect])
        generation = job.generation + 1
        self._change(names[0], rv=rv, suspended=True, phase="suspending", settled=False, generation=generation)

    def _starts(self, names: list[str], _options: dict[str, str]) -> None:
        self._change(names[0], suspended=False, phase="starting", settled=False)

    def _runs(self, names: list[str], _options: dict[str, str]) -> None:
        self._change(names[0], suspended=False, phase="running", settled=False)

    def _follow(self, names: list[str], options: dict[str, str]) -> None:
        """Jobs come and start in the place of a running job, one after the other; the last takes over its name."""
        asks = " ".join(f"{key}={value}" for key, value in options.items() if key != "times")
        kind = "gang" if "head" in options else "job"
        for _ in range(int(options["times"])):
            name = f"{names[0]}.{len(self.jobs)}"
            for line in (f"finishes {names[0]}", f"gone {names[0]}", f"{kind} {name} {asks}", f"resumed {name}"):
                self.line(line)
                self.settle()
            self.line(f"runs {name}")
            self.settle()
            self.jobs[names[0]] = self.jobs[name]

    def _finishes(self, names: list[str], _options: dict[str, str]) -> None:
        outcome = names[1] if len(names) > 1 else "succeeded"
        self._change(names[0], phase="finished", outcome=outcome)

    def _names(self, names: list[str], _options: dict[str, str]) -> None:
        self._change(names[0], child=names[1])

    def _suspends(self, names: list[str], options: dict[str, str]) -> None:
        generation, by = self.jobs[names[0]].generation + 1, options.get("by", "")
        self._change(
            names[0], suspended=True, phase="suspending", settled=False, generation=generation, suspended_by=by
        )

    def _settles(self, names: list[str], _options: dict[str, str]) -> None:
        self._change(names[0], suspended=True, phase="waiting", settled=True)

    def _gone(self, names: list[str], _options: dict[str, str]) -> None:
        namespace, _, name = names[0].rpartition("/")
        ref = self.jobs[names[0]].ref if names[0] in self.jobs else facts.job_ref(name, namespace or "video")
        self.bench.facts(facts.gone(ref.name, ref.namespace))

    def _cluster(self, names: list[str], options: dict[str, str]) -> None:
        self.bench.facts(facts.cluster(names[0], asks=facts.vector(**options)))

    def _cluster_gone(self, names: list[str], _options: dict[str, str]) -> None:
        self.bench.facts(facts.cluster_gone(names[0]))

    def _pod(self, names: list[str], options: dict[str, str]) -> None:
        self.bench.facts(facts.pod(names[0], int(names[1]), request=facts.vector(**options)))

    def _pod_gone(self, names: list[str], _options: dict[str, str]) -> None:
        self.bench.facts(facts.pod_gone(names[0], int(names[1])))

    # --- nodes and gangs --------------------------------------------------------------------------------------

    def _placement(self, names: list[str], options: dict[str, str]) -> None:
        chosen = PlacementChosen(
            mode=names[0],
            hold_ms=int(options.get("hold", "600")) * 1000,
            grow_ms=int(options.get("grow", "0")) * 1000,
        )
        self.bench.append("gang_admitter", "input", [chosen])

    def _node(self, names: list[str], options: dict[str, str]) -> None:
        key, _, value = options.get("taint", "").partition(":")
        self.bench.facts(
            nodes.node(
                names[0],
                **{each: int(options[each]) for each in ("cpu", "memory", "gpu", "pods") if each in options},
                labels={each: options[each] for each in ("zone", "pool") if each in options},
                taints=(Taint(key, value),) if key else (),
                schedulable="cordoned" not in names,
                ready="not-ready" not in names,
            )
        )

    def _node_gone(self, names: list[str], _options: dict[str, str]) -> None:
        self.bench.facts(NodeGone(ref=Ref("Node", "", names[0], f"uid-{names[0]}"), rv=facts.next_rv()))

    def _pool(self, names: list[str], options: dict[str, str]) -> None:
        self.pools[names[0]] = nodes.pool(
            names[0],
            int(options["max"]),
            **{each: int(options[each]) for each in ("cpu", "memory", "gpu") if each in options},
            taint=options.get("taint", ""),
            wait_s=int(options.get("wait", "900")),
            provisioning=options.get("class", nodes.ATOMIC),
        )
        self.bench.facts(nodes.pools(*self.pools.values()))

    def _pools_gone(self, _names: list[str], _options: dict[str, str]) -> None:
        self.bench.facts(NodePoolsGone(ref=nodes.POOLS, rv=facts.next_rv()))

    def _unserved(self, _names: list[str], _options: dict[str, str]) -> None:
        self.bench.facts(Synced(kind="provisioningrequests", absent=True))

    def _answer(self, names: list[str], _options: dict[str, str]) -> None:
        asked = next(
            event
            for stored in reversed(self.bench.log)
            for event in stored.commit.events
            if isinstance(event, NodesRequested) and events.subject_of(event).endswith(names[0])
        )
        ref = Ref("ProvisioningRequest", asked.namespace, asked.name, f"uid-{asked.name}")
        text = " ".join(names[2:])
        self.bench.facts(NodesRequestObserved(ref=ref, rv=facts.next_rv(), phase=names[1], message=text))

    def _foreign(self, names: list[str], options: dict[str, str]) -> None:
        request = facts.vector(**{each: options[each] for each in ("cpu", "gpu") if each in options})
        ref = Ref("Pod", "other", names[0], f"pod-{names[0]}")
        state = PodState(ref=ref, rv=facts.next_rv(), node=options["node"], running=True, request=request)
        self.bench.facts(PodObserved(pod=state))

    def _foreign_gone(self, names: list[str], _options: dict[str, str]) -> None:
        self.bench.facts(PodGone(ref=Ref("Pod", "other", names[0], f"pod-{names[0]}"), rv=facts.next_rv()))

    def _alone(self, names: list[str], options: dict[str, str]) -> None:
        state = PodState(
            ref=Ref("Pod", "video", names[0], f"pod-{names[0]}"),
            rv=facts.next_rv(),
            node=options.get("node", ""),
            over="over" in names,
            request=facts.vector(cpu=options["cpu"]),
            scheduler="muster",
        )
        self.bench.facts(PodObserved(pod=state))

    def _alone_gone(self, names: list[str], _options: dict[str, str]) -> None:
        self.bench.facts(PodGone(ref=Ref("Pod", "video", names[0], f"pod-{names[0]}"), rv=facts.next_rv()))

    def _gang(self, names: list[str], options: dict[str, str]) -> None:
        namespace, _, name = names[0].rpartition("/")
        count, _, cpu = options["workers"].partition("x")
        worker = facts.vector(cpu=cpu, **({"gpu": options["gpu"]} if "gpu" in options else {}))
        sets = (PodSet("head", 1, facts.vector(cpu=options["head"])), PodSet("worker", int(count), worker))
        need = summed([sets[0].request, *[worker] * int(count)])
        changes: dict[str, object] = {"created": self.bench.now - 60_000}
        if "at" in options:
            changes["queued_at"] = self.bench.now - 60_000 + int(options["at"])
        if "prio" in options:
            changes["priority"] = int(options["prio"])
        job = facts.job(name, namespace or "video", need={"ack": need, "full": need}, pod_sets=sets, **changes)
        self.jobs[names[0]] = job
        self.bench.facts(facts.seen(job))

    def _member_ref(self, names: list[str]) -> Ref:
        job, tail = self.jobs[names[0]].ref, f"{names[1]}-{names[2]}"
        return Ref("Pod", job.namespace, f"{job.name}-{tail}", f"{job.uid}-{tail}")

    def _member_gone(self, names: list[str], _options: dict[str, str]) -> None:
        self.bench.facts(PodGone(ref=self._member_ref(names), rv=facts.next_rv()))

    def _member(self, names: list[str], options: dict[str, str]) -> None:
        job = self.jobs[names[0]]
        pods = next(each for each in job.pod_sets if each.name == names[1])
        kind = "head" if names[1] == "head" else "worker"
        state = PodState(
            ref=self._member_ref(names),
            rv=facts.next_rv(),
            owner_uid=facts.cluster_ref(job.ref.name, job.ref.namespace).uid,
            node=options["node"],
            running=True,
            request=pods.request,
            labels={"ray.io/group": names[1], "ray.io/node-type": kind},
        )
        self.bench.facts(PodObserved(pod=state))

    def _time(self, names: list[str], _options: dict[str, str]) -> None:
        self._late = self.bench.pass_time(int(names[0].strip("+s")) * 1000)


def _small() -> facts.TreeNodeSpec:
    ten = {"cpu": 10}
    return facts.node(
        "root",
        ten,
        ten,
        children=(
            facts.node("a", {"cpu": 4}, {"cpu": 10}, ("video",)),
            facts.node("b", {"cpu": 4}, {"cpu": 8}, ("text",)),
        ),
    )


def _bad() -> facts.TreeNodeSpec:
    return facts.node(
        "root", {"cpu": 10}, {"cpu": 9}, children=(facts.node("a", {"cpu": 11}, {"cpu": 10}, ("video",)),)
    )


TREES = {"T0": facts.t0, "small": _small, "bad": _bad}


def tell(event: Event) -> str:
    """One decision as one line; proposals are left out, their answers say it."""
    match event:
        case WorkloadQueued():
            return (
                f"queued {event.ref.key} #{event.attempt} in {event.queue} asking {format_vector(event.request)}"
                f"{f' priority {event.priority}' if event.priority else ''}"
            )
        case WorkloadDequeued():
            return f"dequeued {event.ref.key} #{event.attempt}: {event.reason}"
        case WorkloadRefused():
            refusal = event.refusal
            return f"refused {event.ref.key}: {refusal.reason}: {refused(refusal, event.ref.kind, event.ref.key)}"
        case QuotaReserved():
            why = explain.admitted_beside(event.beside, event.run_ms, event.promised)
            return f"reserved {event.ref.key} #{event.attempt} in {event.queue}{why}"
        case QuotaDenied():
            why = waiting_for_quota(event.short).text if event.short is not None else event.reason
            return f"denied {event.ref.key} #{event.attempt}: {why}"
        case QuotaReleased():
            return f"released {event.ref.key} #{event.attempt}: {event.reason}"
        case ChargeChanged():
            more = f", {format_vector(event.over)} of it beyond its grant" if event.over else ", as granted"
            return f"charged {event.ref.key} #{event.attempt} with {format_vector(event.request)}{more}"
        case WorkloadAdopted():
            return f"adopted {event.ref.key} #{event.attempt} in {event.queue}: {ADOPTED[event.reason]}"
        case PodsAwaited():
            return f"looks for a refusal of the pods of {event.ref.key}"
        case SuspensionRecorded():
            return f"suspended outside {event.ref.key} #{event.attempt}"
        case GangAdmitted():
            return f"admitted {event.ref.key} #{event.attempt}{nodewords.placed(event)}"
        case GangAwaitingNodes():
            return f"awaiting nodes {event.ref.key} #{event.attempt}: {nodewords.lacks_nodes(event)}"
        case GangDeferred():
            return f"deferred {event.ref.key} #{event.attempt}: {nodewords.lacks_nodes(event)}"
        case PlacesFound():
            return f"room for {event.ref.key} #{event.attempt}: {nodewords.room(event)}"
        case PlacesReleased():
            return f"places of {event.ref.key} #{event.attempt}: {nodewords.given_back(event)}"
        case NodesClaimed() | NodesClaimEnded():
            told = events.tell(event)
            return f"{told.word} {event.gang}: {told.text}"
        case NodesRequested():
            return f"asks for nodes {events.subject_of(event)}: {nodewords.nodes_requested(event)}"
        case NodesRequestWithdrawn():
            return f"asks no more {events.subject_of(event)}: {nodewords.nodes_withdrawn(event)}"
        case QuotaTreeAccepted():
            return f"tree accepted: {len(event.tree.nodes)} nodes, profile {event.tree.profile}"
        case QuotaTreeRejected():
            return "tree rejected: " + "; ".join(in_words(each) for each in event.violations)
        case QuotaTreeRemoved():
            return "tree removed"
        case EvictionOrdered() | ReclaimDeferred() | ClaimOpened() | ClaimEnded():
            said = events.tell(event)
            return f"{said.word} {event.ref.key}: {said.text}"
        case CandidatesProposed() | PreemptionProposed():
            return ""
    return type(event).__name__


def scene_of(*lines: str) -> Play:
    """A bench after these lines, at rest after each."""
    scene = Play()
    for line in lines:
        scene.line(line)
        scene.settle()
    return scene


def play(path: Path) -> None:
    """Play a scenario file and compare, or rewrite it."""
    written: list[str] = []
    expected: list[str] = []
    scene = Play()
    block: list[str] = []
    lines = path.read_text().splitlines()
    index = 0
    while index < len(lines):
        line = lines[index]
        written.append(line)
        index += 1
        if line.strip() == "----":
            late: list[str] = []
            for text in block:
                scene._late = []
                scene.line(text)
                late += [told for event in scene._late if (told := tell(event))]
            block = []
            written += late + scene.settle()
            while index < len(lines) and lines[index].strip():
                expected.append(lines[index])
                index += 1
        elif line.strip() and not line.startswith("#"):
            block.append(line)
    assert not block, f"{path.name} ends with input that no ---- follows: {block}"
    text = "\n".join(written).rstrip() + "\n"
    if os.environ.get(REWRITE):
        path.write_text(text)
        return
    assert text == path.read_text().rstrip() + "\n", f"play {path.name} again with {REWRITE}=1 and read the diff"
