"""Gangs of pods are placed: all pods needed by a unit in a single decision, or none. A waiting gang has a notice with
the reason.

No room is held for a gang that does not fit, so no two gangs can hold each other up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from muster.core.gang import heldplaces, nodeclaims, podquota, podunits
from muster.core.gang.admitterstate import AdmitterState
from muster.core.gang.heldplaces import placed_on
from muster.core.gang.jobplaces import asks_of, in_force, strategy_of
from muster.core.gang.newnodes import Growing
from muster.core.gang.podgangs import NodeClaim, Parked, PodGang, said
from muster.core.gang.podunits import MAX_AT_ONCE, Unit, Why, is_parked, key_of, problems, unit_of, units
from muster.core.placement.matching import pod_labels_asked
from muster.core.placement.place import place
from muster.core.placement.view import Ask, View
from muster.events.base import Decision
from muster.events.gangs import GangHeldBack, HeldBackReason, PodPlace, PodsPlaced, lacks_nodes
from muster.model.places import Shortage
from muster.model.placing import PodRules
from muster.model.pools import Growth, PoolRefusal
from muster.model.strategies import Strategy
from muster.model.workload import PodState


class PodGangPlacer:
    """The placements of a commit: the places so far, and the requests without a place."""

    def __init__(self, state: AdmitterState, view: View, unsettled: set[str], growing: Growing) -> None:
        """``unsettled``: gangs with pods that lose their node in this commit: the need of such a gang is known
        afterwards.
        """
        self._state = state
        self._view = view
        self._strategy: Strategy = state.placement.strategy or "pack"
        self._until = state.now + state.placement.hold_ms
        self._hopeless: dict[str, tuple[Shortage, int]] = {}
        """Request -> (why no place was found, index of the ask without a place)."""
        self._without: dict[tuple[str, str, tuple[int, int]], bool] = {}
        """(request, gang with places, mark of the view) -> whether the request would fit without
        the pods of the gang.
        """
        self._done = unsettled
        """Gangs not to be tried, or not again."""
        self._any = False
        """Pods have been placed in this commit."""
        self._apart, self._looked = False, 0
        """Whether any pod placed so far keeps other pods away, and the number of places looked at."""
        self.claimed = False
        """A gang claims nodes in this commit."""
        self.growing = growing
        self._plans: dict[str, Growth | list[PoolRefusal]] = {}
        """Gang that represents a unit -> nodes that would help, or refusals of the pools."""

    def claimant(self, claim: NodeClaim) -> Iterator[Decision]:
        """A gang of pods with a claim is tried before other waiting gangs."""
        gang = self._state.pods.gangs.get(claim.gang)
        if gang is not None and gang.waiting and gang.key not in self._done:
            self._done.add(gang.key)
            self._hopeless.clear()  # Room kept for this gang was kept from earlier requests.
            yield from self._try(unit_of(self._state, gang))

    def asks_of_claim(self, claim: NodeClaim) -> list[Ask]:
        """The request of a claim's gang."""
        if claim.ref is not None:
            gang_of_job = self._state.gangs.get(claim.ref.uid)
            return asks_of(self._state, gang_of_job) if gang_of_job is not None else []
        gang = self._state.pods.gangs.get(claim.gang)
        return self._asks_of(unit_of(self._state, gang)) if gang is not None and gang.waiting else []

    def decisions_due(self) -> Iterator[Decision]:
        """The due decisions for waiting pods, and for gangs no longer whole."""
        yield from podunits.broken(self._state)
        if not self._state.pods.open:
            return
        taken: set[str] = set()
        for decision in heldplaces.placements_due(self._state, self._until):
            taken.update(place.ref.uid for place in decision.pods)
            yield decision
        for entry in units(self._state):
            if isinstance(entry, PodGang) and self._rests(entry):
                continue
            unit = unit_of(self._state, entry) if isinstance(entry, PodGang) else entry
            if not any(gang.key in self._done for gang in unit.gangs):
                unit.alone = [pod for pod in unit.alone if pod.ref.uid not in taken]
                yield from self._try(unit)

    def _rests(self, gang: PodGang) -> bool:
        """Whether a try of a parked gang would change nothing: another gang with the same request has found no place in
        this commit, and no notice or claim is due.
        """
        parked, state, ledger = gang.parked, self._state, self._view.ledger
        if parked is None or parked.key not in self._hopeless or not is_parked(state, gang):
            return False
        taken = self._view.taken
        if len(taken) > self._looked:
            self._apart = self._apart or any(place.ask.rules.apart for place in taken[self._looked :])
            self._looked = len(taken)
        if ledger.averse or self._apart:
            return False  # Pods with the same request may differ in their labels.
        if not self.claimed and nodeclaims.may_claim(state, gang, lambda: self._asks_of(unit_of(state, gang))):
            return False
        return self._any or podunits.told_lately(self._state, gang) or self._told_the_same(gang, parked)

    def _try(self, unit: Unit) -> Iterator[Decision]:
        left, refused = podquota.without_refused(self._state, unit)
        why, places = problems(self._state, left), list[PodPlace]()
        if left.needs and not any(key in why for key in left.needs):
            whole = self._whole(left)
            if isinstance(whole, Shortage):
                why |= {key: Why("no_nodes", shortage=whole) for key in left.needs}
                yield from self._claim(unit)
            else:
                places = whole
        for pod in left.alone:
            if len(places) >= MAX_AT_ONCE:
                break  # The others follow in the next commit.
            one = self._place([pod])
            if isinstance(one, Shortage):
                why.setdefault(self._state.pods.gang_of[pod.ref.uid], Why("no_nodes", shortage=one))
            else:
                places += one
        # Pods that wait for quota keep their places from other pods of this commit.
        yield from podquota.proposal(self._state, unit, places, refused)
        places = podquota.charged(self._state, unit, places)
        if places:
            yield self._placed(unit, places)
        for key in podquota.held_up(self._state, refused):
            why.setdefault(key, podquota.why(self._state, unit))
        for gang in unit.gangs:
            if gang.key in why and gang.waiting:
                yield from self._tell(unit, gang, why[gang.key])

    def _claim(self, unit: Unit) -> Iterator[Decision]:
        """A single gang at a time claims nodes: the first that has aged, and would ever fit."""
        if not self.claimed:
            claims = nodeclaims.claim(self._state, unit.gangs[0], self._asks_of(unit), self._strategy)
            self.claimed = bool(claims)
            yield from claims

    def _asks_of(self, unit: Unit) -> list[Ask]:
        """The request needed for the start of a unit, shape by shape."""
        return self._asks([pod for key, pool in unit.pools.items() for pod in pool[: unit.needs[key]]])[0]

    # --- places -----------------------------------------------------------------------------------------------

    def _whole(self, unit: Unit) -> list[PodPlace] | Shortage:
        """Places for all pods of a unit that start together; otherwise for as many as needed by its gangs."""
        everyone = [pod for pool in unit.pools.values() for pod in pool]
        places = self._place(everyone)
        if not isinstance(places, Shortage) or all(len(pool) == unit.needs[key] for key, pool in unit.pools.items()):
            return places
        chosen: list[PodState] = []
        for key, pool in unit.pools.items():
            need = unit.needs[key]
            fitting = [pod for pod in pool if not isinstance(self._alone(pod), Shortage)]
            if len(fitting) < need:
                return places
            chosen += fitting[:need]
        least = self._place(chosen)
        if not isinstance(least, Shortage):
            uids = {pod.ref.uid for pod in chosen}
            unit.alone += [pod for pod in everyone if pod.ref.uid not in uids]
        return least

    def _alone(self, pod: PodState) -> list[PodPlace] | Shortage:
        mark = self._view.mark()
        places = self._place([pod])
        self._view.undo(mark)
        return places

    def _place(self, pods: list[PodState]) -> list[PodPlace] | Shortage:
        """A node for each of the pods, or the reason why some pod has no node."""
        asks, alike, key = self._asks(pods)
        if key in self._hopeless:
            short, index = self._hopeless[key]
            return replace(short, pod_set=asks[index].name)
        start = len(self._view.taken)
        none = place(self._view, asks, self._strategy)
        if none is not None:
            none = nodeclaims.in_the_way(self._state, self._view, none, asks, self._strategy, self.asks_of_claim)
            self._hopeless[key] = (none, next(i for i, ask in enumerate(asks) if ask.name == none.pod_set))
            return none
        left = {id(ask): iter(members) for ask, members in zip(asks, alike, strict=True)}
        places: list[PodPlace] = []
        for taken in self._view.taken[start:]:
            for index in range(taken.count):
                pod = next(left[id(taken.ask)])
                devices = taken.devices_of(index)
                places.append(placed_on(self._state, pod.ref, pod.rules, taken.node, devices))
        return sorted(places, key=lambda place: (place.ref.namespace, place.ref.name))

    def _asks(self, pods: list[PodState]) -> tuple[list[Ask], list[list[PodState]], str]:
        """(asks, the pods of each ask, a text equal for equal requests)."""
        digests = self._state.pods.shapes
        shapes: dict[str, list[PodState]] = {}
        for pod in pods:
            shapes.setdefault(digests[pod.ref.uid], []).append(pod)
        asked = self._labels_asked(alike[0] for alike in shapes.values())
        if asked:
            shapes = {}
            for pod in pods:
                labels = [pod.labels.get(key) for key in asked]
                shapes.setdefault(f"{digests[pod.ref.uid]} {labels}", []).append(pod)
        ordered = sorted(shapes.items())
        key = key_of((shape, len(alike)) for shape, alike in ordered)
        return [self._ask(alike, asked) for _, alike in ordered], [alike for _, alike in ordered], key

    def _blocked_by(self, unit: Unit, gang: PodGang) -> str:
        """The gang admitted before, if this gang would have places without the other's pods; otherwise empty."""
        state, view = self._state, self._view
        other = self._other(gang)
        if other is None:
            return ""
        needed = [pod for key, pool in unit.pools.items() for pod in pool[: unit.needs[key]]]
        asks, _, key = self._asks(needed or unit.alone[:1])
        mark = view.mark()
        known = self._without.get((key, other.key, mark))
        if known is not None and len(asks) == 1:
            return other.key if known else ""
        for uid in other.pods:
            occupant = state.ledger.occupants.get(uid)
            if occupant is not None:
                view.give(occupant)
        fits = place(view, asks, self._strategy) is None
        view.undo(mark)
        self._without[key, other.key, mark] = fits
        return other.key if fits else ""

    def _other(self, gang: PodGang) -> PodGang | None:
        other = self._state.pods.gangs.get(gang.by)
        return None if other is None or other.key in gang.group or not other.count("placed", "bound") else other

    def _labels_asked(self, pods: Iterable[PodState]) -> list[str]:
        """The label keys used by rules between pods: pods that differ only in other labels are alike."""
        ledger = self._view.ledger
        rules: list[PodRules] = [pod.rules for pod in pods]
        rules += [ledger.occupants[key].rules for key in ledger.averse]
        rules += [taken.ask.rules for taken in self._view.taken if taken.ask.rules.apart]
        return pod_labels_asked(rules)

    def _placed(self, unit: Unit, places: list[PodPlace]) -> PodsPlaced:
        self._any = True
        placed = {self._state.pods.gang_of[place.ref.uid] for place in places}
        gangs = [gang for gang in unit.gangs if gang.key in placed]
        declarations = [gang.declared for gang in gangs if gang.declared is not None]
        return PodsPlaced(
            cause=max(gang.cause for gang in gangs),
            gangs=tuple(gang.key for gang in gangs if gang.declared is not None),
            cycle=max(1, *(gang.cycle for gang in gangs)),
            pods=tuple(places),
            bind_until=self._until,
            complaints=tuple(
                dict.fromkeys(complaint for declaration in declarations for complaint in declaration.complaints)
            ),
        )

    # --- telling ----------------------------------------------------------------------------------------------

    def _tell(self, unit: Unit, gang: PodGang, why: Why) -> Iterator[Decision]:
        """A notice of the reason why a gang waits, if a notice is due now."""
        now, told = self._state.now, gang.told
        if why.patient and now < gang.since + podunits.GRACE_MS:
            return
        tried = why.reason == "no_nodes"
        if tried and self._any:
            return  # A gang was admitted just now: the notice is made once the admission is in force.
        if tried and podunits.told_lately(self._state, gang):
            return
        over = tried and podunits.over(self._state, gang)
        lately = told is not None and now < told.at + podunits.TELL_AGAIN_MS
        passed, elsewhere = podunits.passed(gang), tried and podunits.elsewhere(self._state, gang)
        reason: HeldBackReason = "timed_out" if over else why.reason
        by = self._blocked_by(unit, gang) if tried else ""
        if by:
            reason = podunits.gave_way(self._state, gang)
        growth, refusals = self._growth_of(unit, gang) if tried and unit.needs else (None, ())
        event = GangHeldBack(
            cause=gang.cause,
            gang=gang.key if gang.declared is not None else "",
            cycle=max(gang.cycle, 1) if tried else gang.cycle,
            reason=reason,
            problem=why.problem,
            pods=tuple(self._state.pods.pods[uid].ref for uid in podunits.named(self._state, gang)),
            waiting=len(gang.waiting),
            minimum=unit.needs.get(gang.key, 0),
            shortage=why.shortage,
            short=why.short,
            by=by,
            ended=over,
            group=tuple(member.key for member in unit.gangs) if len(unit.gangs) > 1 else (),
            complaints=gang.declared.complaints if gang.declared is not None else (),
            growth=growth,
            refusals=refusals,
        )
        if elsewhere and told is not None and told.said == said(event):
            return
        if told is not None and not over and not elsewhere and not (passed and by):
            same = told.reason == reason or (tried and lacks_nodes(told.reason))
            if same and (told.said == said(event) or lately):
                return
        yield event

    def _told_the_same(self, gang: PodGang, parked: Parked) -> bool:
        """Whether the next notice of a parked gang would equal the last; also false where a glance does not tell."""
        told, other, short = gang.told, self._other(gang), self._hopeless[parked.key][0]
        passed = other is not None and self._without.get((parked.key, other.key, self._view.mark()))
        if (
            told is None
            or passed is None
            or len(parked.names) > 1
            or self.growing.pools
            or podunits.over(self._state, gang)
        ):
            return False
        if podunits.passed(gang) or podunits.elsewhere(self._state, gang):
            return False
        event = GangHeldBack(
            cause=gang.cause,
            gang=gang.key,
            reason=podunits.gave_way(self._state, gang) if passed else "no_nodes",
            waiting=len(gang.waiting),
            minimum=len(gang.waiting),
            shortage=replace(short, pod_set=parked.names[0]),
            by=gang.by if passed else "",
            complaints=gang.declared.complaints if gang.declared is not None else (),
        )
        return told.said == said(event)

    def _growth_of(self, unit: Unit, gang: PodGang) -> tuple[Growth | None, tuple[PoolRefusal, ...]]:
        """The nodes missing for a unit in pools that may add nodes; otherwise the refusals of the pools."""
        if not self.growing.pools:
            return None, ()
        if gang.growth is not None and self._state.now < gang.growth_until:
            return gang.growth, ()
        gangs = tuple(member.key for member in unit.gangs)
        if gangs[0] not in self._plans:
            self._plans[gangs[0]] = self.growing.plan(self._view, self._asks_of(unit), gangs[0], gangs)
        plan = self._plans[gangs[0]]
        return (plan, ()) if isinstance(plan, Growth) else (None, tuple(plan))

    def _ask(self, alike: list[PodState], asked: list[str]) -> Ask:
        """The ask of pods that are alike in all labels asked for."""
        pod = alike[0]
        labels = {key: pod.labels[key] for key in asked if key in pod.labels}
        rules = in_force(self._state, pod.ref.key, replace(pod.rules, labels=labels))
        ask = Ask(pod.ref.name, len(alike), pod.request, pod.ref.namespace, rules)
        return replace(ask, strategy=strategy_of(self._state, ask))
