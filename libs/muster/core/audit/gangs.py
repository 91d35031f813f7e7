"""What the audit asks of gangs of pods, from the log alone: they start whole, and nothing is bound that has no node."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field

from muster.core.audit.seen import Finding
from muster.core.gang.declare import Declared, GangCounts, counting, declared_by, missing
from muster.events.base import Cause, Event
from muster.events.decisions import GangAdmitted, GangAwaitingNodes, GangDeferred, WorkloadDequeued
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.envelope import Commit, Stored
from muster.events.facts import PodGone, PodGroupGone, PodGroupObserved, PodObserved, WorkloadGone
from muster.events.gangs import NodesClaimed, NodesClaimEnded, PodsPlaced
from muster.events.system import PlacementChosen
from muster.model.gang import PodGroup
from muster.model.workload import PodState


class _Team(Struct):
    pods: dict[str, None] = field(default_factory=dict)
    started: bool = False
    changed: int = 0
    """Sequence of the last fact about it, or of the last binding of it that failed."""


class _Claims:
    """Nodes that are kept for gangs: no node for two of them, each old enough, none beyond its deadline."""

    def __init__(self) -> None:
        self._claims: dict[str, NodesClaimed] = {}
        self._due_seq: dict[str, int] = {}
        """Sequence from which on the deadline of a claim had passed."""
        self._age_ms = 0
        self._vain: dict[str, int] = {}
        """uid of a job -> log time of the first try that failed"""

    def feed(self, stored: Stored) -> Iterator[Finding]:
        places = False
        for event in stored.commit.events:
            match event:
                case PlacementChosen():
                    self._age_ms = event.claim_ms
                case GangDeferred() | GangAwaitingNodes():
                    self._vain.setdefault(event.ref.uid, stored.commit.at)
                case GangAdmitted() | WorkloadDequeued() | WorkloadGone():
                    self._vain.pop(event.ref.uid, None)
                    places = places or isinstance(event, GangAdmitted)
                case PodsPlaced():
                    places = True
                case NodesClaimed():
                    key, mine = _key(event), {place.node for place in event.places}
                    others = [each for each in self._claims.values() if mine & {place.node for place in each.places}]
                    said = " and ".join(f"for {each.gang}" for each in (event, *others))
                    yield "I3", not others and key not in self._claims, f"nodes are kept {said}"
                    since = self._vain.get(event.ref.uid) if event.ref is not None else None
                    if since is not None:
                        waited = stored.commit.at - since
                        old = waited >= self._age_ms > 0
                        yield "I3", old, f"nodes are kept for {event.gang} after {waited} ms, before {self._age_ms}"
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


def _key(event: NodesClaimed | NodesClaimEnded) -> str:
    return event.ref.uid if event.ref is not None else event.gang


class GangAudit:
    """Feed it every commit in order."""

    def __init__(self) -> None:
        self._pods: dict[str, PodState] = {}
        self._key: dict[str, str] = {}
        self._teams: dict[str, _Team] = {}
        self._groups: dict[str, dict[str, PodGroup]] = {}
        self._gone: set[str] = set()
        self._placed: dict[str, tuple[str, Cause]] = {}
        """uid of a pod that has a node by our decision, and is neither bound nor over -> the node, the decision"""
        self._decided: set[tuple[str, Cause]] = set()
        """(uid of a pod, the decision that gave it a node)"""
        self._given: set[str] = set()
        """Pods that were given a node once."""

        self._claims = _Claims()

    def feed(self, stored: Stored) -> Iterator[Finding]:
        """What is found in one commit."""
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
        """I3: the pods of a decision are all that their gangs need to start, and none of them has a node already."""
        if any(place.ref.uid in self._gone for place in event.pods):
            return  # Void as a whole.
        given: dict[str, int] = {}
        for place in event.pods:
            key = self._key.get(place.ref.uid, "")
            given[key] = given.get(key, 0) + 1
        for key in event.gangs:
            team, said = self._team(key), self._said(key)
            if team.changed > commit.in_seq or said is None or said.refusal:
                continue
            need = missing(said.policy, said.minimum, self._counts(team))
            again = all(each.ref.uid in self._given for each in event.pods if self._key.get(each.ref.uid) == key)
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

    def _counts(self, team: _Team) -> GangCounts:
        pods = [self._pods[uid] for uid in team.pods]
        running = sum(not pod.over and (bool(pod.node) or pod.ref.uid in self._placed) for pod in pods)
        return GangCounts(0, running, sum(pod.succeeded for pod in pods), team.started)

    def _said(self, key: str) -> Declared | None:
        team = self._teams.get(key)
        if team is None or not team.pods:
            return None
        pod = self._pods[next(iter(team.pods))]
        group = counting(self._groups.get(key, {}).values(), native=bool(pod.group))
        return declared_by(pod, group)

    def _team(self, key: str) -> _Team:
        return self._teams.setdefault(key, _Team())

    def _observed(self, seq: int, pod: PodState) -> None:
        uid = pod.ref.uid
        if not pod.scheduler or uid in self._gone:
            return
        known = self._pods.get(uid)
        if known is not None and known.rv >= pod.rv:
            return
        said = declared_by(pod)
        key = "" if said is None else said.gang
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
