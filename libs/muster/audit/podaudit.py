"""The audit of pods: gangs, charges of standalone pods, nodes and workers, from the log alone.

The auditor reads the labels of a pod and the PodGroup itself, so a fault of the admitter's reader is a finding.
Gangs start whole, and no pod without a node is bound. Node requests: one for each gang that lacks nodes, within the
limits of pools. Standalone pods (I29): a pod in a counted quota gets a node from muster only after the charge. Workers
deleted by Muster: the operator of the cluster was asked first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from muster.audit.auditbooks import Finding, Trees
from muster.events.base import Cause, Event
from muster.events.claims import ClaimEnded, ClaimOpened
from muster.events.decisions import (
    GangAdmitted,
    GangAwaitingNodes,
    GangDeferred,
    QuotaReleased,
    QuotaReserved,
    QuotaTreeAccepted,
    QuotaTreeRemoved,
    WorkloadAdopted,
    WorkloadDequeued,
    WorkloadQueued,
)
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.elastic import GateSet, GrowthWithdrawn, WorkersKept, WorkersRemoved
from muster.events.envelope import Commit, Stored
from muster.events.facts import (
    NodePoolsObserved,
    PodGone,
    PodGroupGone,
    PodGroupObserved,
    PodObserved,
    WorkloadGone,
    WorkloadObserved,
)
from muster.events.gangs import NodesClaimed, NodesClaimEnded, PodsPlaced, PodsReserved
from muster.events.growing import NodesRequested, NodesRequestWithdrawn, for_whom
from muster.model.gang import PodGroup
from muster.model.keys import root_of
from muster.model.resources import Vector, add_into, scaled, summed
from muster.model.workload import PodSet, PodState

# --- gangs: what pods and PodGroups declare ---------------------------------------------------------------------------


_SIGS, _X_K8S = "pod-group.scheduling.sigs.k8s.io", "scheduling.x-k8s.io/pod-group"
_KOORDINATOR = "gang.scheduling.koordinator.sh"
_ONCE = "once-satisfied"
_COUNTED = {
    _ONCE: (False, False),
    "only-waiting": (False, False),
    "waiting-and-running": (True, False),
    "waiting-running-succeed": (True, True),
}
"""{match policy: whether running pods and whether succeeded pods count towards the minimum}"""


class GangTerms(Struct, frozen=True):
    """The terms on which the pods of a gang start."""

    minimum: int
    policy: str

    def lacking(self, running: int, succeeded: int, *, started: bool) -> int:
        """The number of pods to place, in the same decision, for the gang to start; 0 or less: a single pod may start.

        ``started``: the gang has reached the minimum before.
        """
        if self.policy == _ONCE and started:
            return 0
        with_running, with_succeeded = _COUNTED[self.policy]
        return self.minimum - with_running * running - with_succeeded * succeeded


def gang_name(pod: PodState) -> str:
    """namespace/name of the gang of a pod, by ``spec.schedulingGroup``, a label or the annotation; empty without."""
    name = pod.group
    for key in (_SIGS, f"{_SIGS}/name", _X_K8S):
        name = name or pod.labels.get(key, "")
    name = name or pod.marks.get(f"{_KOORDINATOR}/name", "")
    return f"{pod.ref.namespace}/{name}" if name else ""


def terms_of(pod: PodState, groups: Iterable[PodGroup]) -> GangTerms | None:
    """The terms of the gang of a pod; None where nothing declares a minimum. ``groups``: the PodGroups of the name.

    A PodGroup comes before the labels, and a label before an annotation (docs/howto/gangs.md).
    """
    fitting = [group for group in groups if group.native == bool(pod.group)]
    fitting.sort(key=lambda group: (group.ref.kind, group.created, group.ref.uid))
    group = fitting[0] if fitting else None
    if pod.group:
        if group is None or (group.minimum < 1 and not group.alone):
            return None
        return GangTerms(group.minimum, "waiting-and-running")
    texts = [(pod.labels, f"{_SIGS}/min-available"), (pod.marks, f"{_KOORDINATOR}/min-available")]
    declared = _first(texts)
    minimum = group.minimum if group is not None else int(declared) if re.fullmatch("[0-9]{1,10}", declared) else 0
    if not 0 < minimum < 2**31:
        return None
    sigs, koordinator = f"{_SIGS}/match-policy", f"{_KOORDINATOR}/match-policy"
    texts = [(pod.labels, sigs), (pod.marks, sigs), (pod.marks, koordinator)]
    if group is not None:
        texts = [(group.annotations, sigs), (group.annotations, koordinator), *texts]
    policy = _first(texts)
    by_annotation = group is None and not any(pod.labels.get(key) for key in (_SIGS, f"{_SIGS}/name", _X_K8S))
    return GangTerms(minimum, _ONCE if by_annotation or policy not in _COUNTED else policy)


def _first(texts: Iterable[tuple[Mapping[str, str], str]]) -> str:
    """The value of the first key present; empty without."""
    return next((values[key] for values, key in texts if key in values), "")


# --- gangs ------------------------------------------------------------------------------------------------------------


class _Team(Struct):
    pods: dict[str, None] = field(default_factory=dict)
    started: bool = False
    changed: int = 0
    """Sequence of the last fact about the pod, or of the pod's last failed binding."""


_WIDTHS = 8
"""A job has aged once later work of so many times its own width has been placed."""
_EARLIER_MS = 600_000
"""By the rule of earlier builds a job has aged after such a time without places."""


class _Vain(Struct):
    """A job without places."""

    since: int
    """Log time of the first failed try."""
    passed: Vector = field(default_factory=dict)
    """The amounts placed since for work that was queued later; since the last claim of nodes, if any."""
    turn: bool = False
    """Its last claim of nodes has yielded: the next needs no more later work."""
    aged: bool = False
    """Quota is held for the age of the job."""
    over: int = 0
    """Sequence from which on no quota is held; 0 before."""


class _Claims:
    """Nodes kept for gangs: no node for two gangs, each claim by a job that has aged, no claim beyond its deadline.

    Work that passed gangs of pods is not counted.
    """

    def __init__(self, pods: Mapping[str, PodState]) -> None:
        self._pods = pods
        self._claims: dict[str, NodesClaimed] = {}
        self._due_seq: dict[str, int] = {}
        """Sequence from which on the deadline of a claim had passed."""
        self._sets: dict[str, tuple[PodSet, ...]] = {}
        """uid of a job -> pod sets as last seen"""
        self._came: dict[str, int] = {}
        """uid of a job -> log time of the first attempt since the job last ran"""
        self._vain: dict[str, _Vain] = {}

    def feed(self, stored: Stored) -> Iterator[Finding]:
        places = False
        for event in stored.commit.events:
            self._note(stored, event)
            match event:
                case GangAdmitted() | PodsPlaced():
                    places = True
                case NodesClaimed():
                    key, mine = _key(event), {place.node for place in event.places}
                    others = [claim for claim in self._claims.values() if mine & {place.node for place in claim.places}]
                    gangs = " and ".join(f"for {claim.gang}" for claim in (event, *others))
                    yield "I3", not others and key not in self._claims, f"nodes are kept {gangs}"
                    vain = self._vain.get(event.ref.uid) if event.ref is not None else None
                    if vain is not None:
                        aged = vain.turn or vain.aged or vain.over > stored.commit.in_seq or self._passed(event, vain)
                        aged = aged or stored.commit.at - vain.since >= _EARLIER_MS
                        yield "I3", aged, f"nodes are kept for {event.gang}, and only {vain.passed} passed it"
                        vain.passed, vain.turn = {}, False
                    self._claims[key] = event
                    self._due_seq.pop(key, None)
                case NodesClaimEnded():
                    self._claims.pop(_key(event), None)
                case _:
                    pass
        for key, claim in self._claims.items():
            if stored.commit.at >= claim.until:
                self._due_seq.setdefault(key, stored.seq)
            if places:
                kept = not 0 < self._due_seq.get(key, 0) <= stored.commit.in_seq
                yield "I3", kept, f"nodes are kept for {claim.gang} beyond {claim.until}"

    def _note(self, stored: Stored, event: Event) -> None:
        match event:
            case WorkloadObserved():
                self._sets[event.workload.ref.uid] = event.workload.pod_sets
            case WorkloadQueued():
                self._came.setdefault(event.ref.uid, stored.commit.at)
            case GangDeferred() | GangAwaitingNodes():
                self._vain.setdefault(event.ref.uid, _Vain(stored.commit.at))
            case ClaimOpened(kind="age"):
                self._vain.setdefault(event.ref.uid, _Vain(stored.commit.at)).aged = True
            case ClaimEnded() if event.ref.uid in self._vain and self._vain[event.ref.uid].aged:
                self._vain[event.ref.uid].aged, self._vain[event.ref.uid].over = False, stored.seq
            case NodesClaimEnded(outcome="yielded") if _key(event) in self._vain:
                self._vain[_key(event)].turn = True
            case GangAdmitted():
                self._vain.pop(event.ref.uid, None)
                requests = {pods.name: pods.request for pods in event.pod_sets}
                placed = summed(scaled(requests.get(place.pod_set, {}), place.count) for place in event.placements)
                self._passes(placed, self._came.get(event.ref.uid, stored.commit.at))
            case PodsPlaced():
                pods = [self._pods[place.ref.uid] for place in event.pods if place.ref.uid in self._pods]
                self._passes(summed(pod.request for pod in pods), stored.commit.at)
            case QuotaReleased() if event.reason != "no_nodes":
                self._came.pop(event.ref.uid, None)
            case WorkloadDequeued() | WorkloadGone():
                self._came.pop(event.ref.uid, None)
                self._vain.pop(event.ref.uid, None)
                if isinstance(event, WorkloadGone):
                    self._sets.pop(event.ref.uid, None)
            case _:
                pass

    def _passes(self, amounts: Vector, came: int) -> None:
        for vain in self._vain.values():
            if came > vain.since:
                add_into(vain.passed, amounts)

    def _passed(self, event: NodesClaimed, vain: _Vain) -> bool:
        """Whether the work that has passed a job is ``_WIDTHS`` times as wide, in some resource that the job asks."""
        sets = {pods.name: pods for pods in self._sets.get(_key(event), ())}
        claimed = [(sets[place.pod_set], place.count) for place in event.places if place.pod_set in sets]
        wide = summed(scaled(pods.request if pods.takes is None else pods.takes, count) for pods, count in claimed)
        return any(0 < asked * _WIDTHS <= vain.passed.get(name, 0) for name, asked in wide.items())


def _key(event: NodesClaimed | NodesClaimEnded) -> str:
    return event.ref.uid if event.ref is not None else event.gang


class GangAudit:
    """Feed every commit in order."""

    def __init__(self) -> None:
        self._pods: dict[str, PodState] = {}
        self._key: dict[str, str] = {}
        self._teams: dict[str, _Team] = {}
        self._groups: dict[str, dict[str, PodGroup]] = {}
        self._gone: set[str] = set()
        self._placed: dict[str, tuple[str, Cause]] = {}
        """uid of a pod with a node by our decision, neither bound nor over -> (node, decision)"""
        self._decided: set[tuple[str, Cause]] = set()
        """(uid of a pod, decision with the pod's node)"""
        self._given: set[str] = set()
        """Pods with a node at any earlier time."""

        self._claims = _Claims(self._pods)

    def feed(self, stored: Stored) -> Iterator[Finding]:
        """The findings of one commit."""
        for item, event in enumerate(stored.commit.events):
            yield from self._event(stored.seq, item, stored.commit, event)
        yield from self._claims.feed(stored)

    def _event(self, seq: int, item: int, commit: Commit, event: Event) -> Iterator[Finding]:
        match event:
            case PodObserved():
                self._observed(seq, event.pod)
            case PodGone():
                self._gone.add(event.ref.uid)
                self._drop(seq, event.ref.uid)
            case PodGroupObserved():
                group = event.pod_group
                self._groups.setdefault(group.ref.key, {})[group.ref.uid] = group
                self._team(group.ref.key).changed = seq
            case PodGroupGone():
                self._groups.get(event.ref.key, {}).pop(event.ref.uid, None)
                self._team(event.ref.key).changed = seq
            case PodsPlaced():
                yield from self._starts(seq, item, commit, event)
            case EffectFailed(action="bind"):
                if event.ref.uid in self._placed and self._placed[event.ref.uid][1] == event.cause:
                    del self._placed[event.ref.uid]
                    self._team(self._key.get(event.ref.uid, "")).changed = seq
            case EffectApplied(action="bind"):
                known = (event.ref.uid, event.cause) in self._decided
                yield "I1", known, f"{event.ref} is bound, and was given no node"

    def _starts(self, seq: int, item: int, commit: Commit, event: PodsPlaced) -> Iterator[Finding]:
        """I3: the pods of a decision suffice for the start of their gangs, and no pod of the decision has a node."""
        if any(place.ref.uid in self._gone for place in event.pods):
            return  # Void as a whole.
        given: dict[str, int] = {}
        for place in event.pods:
            key = self._key.get(place.ref.uid, "")
            given[key] = given.get(key, 0) + 1
        for key in event.gangs:
            team = self._team(key)
            if team.changed > commit.in_seq or not team.pods:
                continue
            terms = self._terms(key)
            if terms is None:
                yield "I3", False, f"gang {key} starts, and nothing declares its minimum"
                continue
            need = self._lacking(team, terms)
            again = all(place.ref.uid in self._given for place in event.pods if self._key.get(place.ref.uid) == key)
            whole = need <= given.get(key, 0) or again
            yield "I3", whole, f"gang {key} starts with {given.get(key, 0)} pods and needs {need}"
        for place in event.pods:
            uid = place.ref.uid
            pod = self._pods.get(uid)
            if pod is not None and not pod.node and not pod.over:
                before = self._placed[uid][0] if uid in self._placed else ""
                yield "I9", not before, f"{place.ref} is given {place.node} and has {before}"
                self._placed[uid] = (place.node, Cause(seq, item))
            self._decided.add((uid, Cause(seq, item)))
            self._given.add(uid)
        for key in event.gangs:
            self._team(key).started = True

    def _terms(self, key: str) -> GangTerms | None:
        pod = self._pods[next(iter(self._teams[key].pods))]
        return terms_of(pod, self._groups.get(key, {}).values())

    def _lacking(self, team: _Team, terms: GangTerms) -> int:
        pods = [self._pods[uid] for uid in team.pods]
        running = sum(not pod.over and (bool(pod.node) or pod.ref.uid in self._placed) for pod in pods)
        return terms.lacking(running, sum(pod.succeeded for pod in pods), started=team.started)

    def _team(self, key: str) -> _Team:
        return self._teams.setdefault(key, _Team())

    def _observed(self, seq: int, pod: PodState) -> None:
        uid = pod.ref.uid
        if not pod.scheduler or uid in self._gone:
            return
        known = self._pods.get(uid)
        if known is not None and known.rv >= pod.rv:
            return
        key = gang_name(pod)
        if self._key.get(uid, key) != key:
            self._drop(seq, uid)
        self._pods[uid], self._key[uid] = pod, key
        if pod.node or pod.over:
            self._placed.pop(uid, None)
        if key:
            team = self._team(key)
            team.pods[uid] = None
            team.changed = seq
            team.started = team.started or (bool(pod.node) and not pod.over)

    def _drop(self, seq: int, uid: str) -> None:
        self._pods.pop(uid, None)
        self._placed.pop(uid, None)
        key = self._key.pop(uid, "")
        if key:
            team = self._team(key)
            team.pods.pop(uid, None)
            team.changed = seq
            team.started = team.started and bool(team.pods)


# --- requests for nodes -----------------------------------------------------------------------------------------------


class GrowthAudit:
    """Feed every commit in order."""

    def __init__(self) -> None:
        self._open: dict[str, str] = {}
        """uid or key of a claimant of nodes -> namespace/name of the request"""
        self._most: dict[str, int] = {}
        """pool -> most nodes ever declared for the pool"""

    def feed(self, stored: Stored) -> Iterator[Finding]:
        """The findings of one commit."""
        for event in stored.commit.events:
            yield from self._event(event)

    def _event(self, event: Event) -> Iterator[Finding]:
        match event:
            case NodePoolsObserved():
                for pool in event.pools:
                    self._most[pool.name] = max(pool.most, self._most.get(pool.name, 0))
            case NodesRequested():
                owner, name = for_whom(event), f"{event.namespace}/{event.name}"
                yield "I21", owner not in self._open, f"{name} is asked for beside {self._open.get(owner)}, for {owner}"
                for node_pool in event.pools:
                    most = self._most.get(node_pool.pool, 0)
                    yield (
                        "I21",
                        node_pool.nodes <= most,
                        f"{name} asks for {node_pool.nodes} of pool {node_pool.pool}, at most {most}",
                    )
                self._open[owner] = name
            case NodesRequestWithdrawn():
                if self._open.get(for_whom(event)) == f"{event.namespace}/{event.name}":
                    del self._open[for_whom(event)]


# --- charges of pods of no job ----------------------------------------------------------------------------------------


class PodChargeAudit:
    """Feed every commit in order."""

    def __init__(self) -> None:
        self._trees = Trees()
        self._pods: dict[str, tuple[PodState, int]] = {}
        """uid -> (standalone pod, sequence of the last fact about the pod)"""
        self._charged: set[str] = set()
        self._reserved: set[str] = set()

    def feed(self, stored: Stored) -> Iterator[Finding]:
        """The findings of one commit."""
        for event in stored.commit.events:
            yield from self._event(stored.seq, stored.commit.in_seq, event)

    def _event(self, seq: int, known: int, event: Event) -> Iterator[Finding]:
        match event:
            case QuotaTreeAccepted() | QuotaTreeRemoved():
                self._trees.note(event, seq)
            case PodObserved():
                uid = event.pod.ref.uid
                if event.pod.ours and not event.pod.owner_uid:
                    self._pods[uid] = (event.pod, seq)
                else:
                    self._pods.pop(uid, None)
            case PodGone():
                self._pods.pop(event.ref.uid, None)
                self._reserved.discard(event.ref.uid)
            case WorkloadAdopted() | QuotaReserved():
                self._charged.add(event.ref.uid)
            case QuotaReleased():
                self._charged.discard(event.ref.uid)
            case PodsReserved():
                for ref in event.pods:
                    leaf = self._leaf(ref.uid, known)
                    yield (
                        "I29",
                        not leaf or ref.uid in self._charged,
                        f"{ref} may be placed, and is not charged at {leaf}",
                    )
                    self._reserved.add(ref.uid)
            case PodsPlaced():
                for place in event.pods:
                    leaf, uid = self._leaf(place.ref.uid, known), place.ref.uid
                    held = not leaf or uid in self._reserved
                    yield "I29", held, f"{place.ref} is given {place.node}, and {leaf} was not asked for it"
            case _:
                pass

    def _leaf(self, uid: str, known: int) -> str:
        """The leaf that counts a pod; empty for none, or where the decider could not know the leaf."""
        pod, since = self._pods.get(uid, (None, 0))
        if pod is None or max(since, self._trees.changed) > known:
            return ""
        named = _quota_of(pod.labels)
        if not named and pod.ref.namespace not in self._trees.leaves:
            return ""
        leaf = self._trees.leaf(pod.ref.namespace, named)
        return leaf if leaf and self._trees.by_root[root_of(leaf)].rules.charge_pods != "none" else ""


def _quota_of(labels: Mapping[str, str]) -> str:
    """The quota or queue that labels name, as ``Trees.leaf`` takes it; empty without."""
    families = ("quota.scheduling.alibabacloud.com/name", "quota.scheduling.koordinator.sh/name")
    named = next((labels[family] for family in families if labels.get(family)), "")
    queue = labels.get("kai.scheduler/queue", "")
    return "/".join(filter(None, (f"kai:{queue}", named))) if queue else named


# --- workers that Muster deletes --------------------------------------------------------------------------------------


PATIENCE_MS = 60_000
"""How long an operator has."""


class _Named(Struct):
    attempt: int
    cause: Cause
    pods: frozenset[str]
    at: int = 0
    """Log time of the write; 0 before."""
    over: int = 0
    """Sequence from which on the write justifies nothing; 0 while valid."""
    over_at: int = 0


class WorkersAudit:
    """Feed every commit in order."""

    def __init__(self) -> None:
        self._asked: dict[str, _Named] = {}
        """uid of the charged workload -> workers of the last request to the operator; kept a minute longer"""
        self._now = 0

    def feed(self, stored: Stored) -> Iterator[Finding]:
        """The findings of one commit."""
        self._now = max(self._now, stored.commit.at)
        for item, event in enumerate(stored.commit.events):
            match event:
                case GateSet() if event.workers:
                    pods = frozenset(pod.uid for refs in event.workers.values() for pod in refs)
                    self._asked[event.owner.uid] = _Named(event.attempt, Cause(stored.seq, item), pods)
                case EffectApplied(action="gate"):
                    for asked in self._asked.values():
                        if asked.cause == event.cause and not asked.at:
                            asked.at = self._now
                case EffectFailed(action="gate"):
                    for uid in [uid for uid, asked in self._asked.items() if asked.cause == event.cause]:
                        del self._asked[uid]
                case GrowthWithdrawn() | QuotaReleased():
                    self._over(event.ref.uid, event.attempt, stored.seq)
                case WorkersKept() if event.unasked:
                    self._over(event.ref.uid, event.attempt, stored.seq)
                case WorkersRemoved():
                    yield self._removed(event, stored.commit.in_seq)
                case _:
                    pass

    def _over(self, owner: str, attempt: int, seq: int) -> None:
        """The named workers are gone, or stay: a decision that knows this deletes no named worker."""
        long_over = [
            uid for uid, named in self._asked.items() if named.over and named.over_at < self._now - PATIENCE_MS
        ]
        for uid in long_over:
            del self._asked[uid]
        asked = self._asked.get(owner)
        if asked is not None and asked.attempt <= attempt and not asked.over:
            asked.over, asked.over_at = seq, self._now

    def _removed(self, event: WorkersRemoved, known: int) -> Finding:
        """``known``: sequence up to which the decider knew the log."""
        asked = self._asked.get(event.owner.uid)
        pods = {pod.uid for refs in event.workers.values() for pod in refs}
        valid = asked is not None and asked.attempt == event.attempt and not 0 < asked.over <= known
        named = asked is not None and valid and pods <= asked.pods
        late = asked is not None and 0 < asked.at <= self._now - PATIENCE_MS
        naming = "were not named to its operator" if not named else "were named to its operator a moment ago"
        return "I27", named and late, f"workers of {event.ref} are deleted that {naming}"
