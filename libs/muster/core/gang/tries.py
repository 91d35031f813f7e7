"""Gangs of pods get their nodes: all that a unit needs in one decision, or nothing; and who waits is told why.

Nothing is held for a gang that does not fit, so that no two of them can hold each other up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from muster.core.gang import jobpods
from muster.core.gang.pods import PodGang, said
from muster.core.gang.state import AdmitterState
from muster.core.gang.units import Unit, Why, problems, units
from muster.core.placement.matching import pod_labels_asked
from muster.core.placement.place import Strategy, place
from muster.core.placement.view import Ask, View
from muster.events.base import Decision
from muster.events.decisions import Shortage
from muster.events.gangs import MAX_PODS_NAMED, GangHeldBack, PodPlace, PodsPlaced
from muster.model.placing import PodRules
from muster.model.workload import PodState

TELL_AGAIN_MS = 60_000
"""A gang that waits for the same reason, in other numbers, is told so again no sooner than this."""
GRACE_MS = 10_000
"""How long the pods of a gang may take to come before it is told that some are missing."""
STARVED_MS = 20 * 60_000
"""How long others may be let in before a gang until that is called starving."""
LONGEST_ROUND = 6
"""Each round takes twice as long as the one before it, so many times."""


class Tries:
    """One commit's worth: what has been placed so far, and which asks found no place."""

    def __init__(self, state: AdmitterState, view: View) -> None:
        self._state = state
        self._view = view
        mode = state.placement.mode
        self._strategy: Strategy = "pack" if mode == "off" else mode
        self._until = state.now + state.placement.hold_ms
        self._hopeless: dict[str, Shortage] = {}

    def due(self) -> Iterator[Decision]:
        """Every decision that is due for pods that wait."""
        if not self._state.pods.open:
            return
        taken: set[str] = set()
        for decision in jobpods.due(self._state, self._until):
            taken.update(each.ref.uid for each in decision.pods)
            yield decision
        for unit in units(self._state):
            unit.alone = [pod for pod in unit.alone if pod.ref.uid not in taken]
            yield from self._try(unit)

    def _try(self, unit: Unit) -> Iterator[Decision]:
        why = problems(self._state, unit)
        if unit.needs and not any(key in why for key in unit.needs):
            found = self._whole(unit)
            if isinstance(found, Shortage):
                why |= {key: Why("no_nodes", shortage=found) for key in unit.needs}
            else:
                yield self._placed(unit.gangs, found)
        short: dict[str, Shortage] = {}
        for gang, pods in _by_gang(self._state, unit.alone):
            places: list[PodPlace] = []
            for pod in pods:
                one = self._place([pod])
                if isinstance(one, Shortage):
                    short.setdefault(gang.key, one)
                else:
                    places += one
            if places:
                yield self._placed([gang], places)
        for gang in unit.gangs:
            because = why.get(gang.key) or (Why("no_nodes", shortage=short[gang.key]) if gang.key in short else None)
            if because is not None and gang.waiting:
                yield from self._tell(unit, gang, because)

    # --- places -----------------------------------------------------------------------------------------------

    def _whole(self, unit: Unit) -> list[PodPlace] | Shortage:
        """Places for all pods of a unit that start together, else for as many as its gangs need."""
        everybody = [pod for pool in unit.pools.values() for pod in pool]
        found = self._place(everybody)
        if not isinstance(found, Shortage) or all(len(pool) == unit.needs[key] for key, pool in unit.pools.items()):
            return found
        chosen: list[PodState] = []
        for key, pool in unit.pools.items():
            need = unit.needs[key]
            fitting = [pod for pod in pool if not isinstance(self._alone(pod), Shortage)]
            if len(fitting) < need:
                return found
            chosen += fitting[:need]
        least = self._place(chosen)
        if not isinstance(least, Shortage):
            uids = {pod.ref.uid for pod in chosen}
            unit.alone += [pod for pod in everybody if pod.ref.uid not in uids]
        return least

    def _alone(self, pod: PodState) -> list[PodPlace] | Shortage:
        mark = self._view.mark()
        found = self._place([pod])
        self._view.undo(mark)
        return found

    def _place(self, pods: list[PodState]) -> list[PodPlace] | Shortage:
        """A node for each of the pods, or why there is none for all of them."""
        shapes: dict[str, list[PodState]] = {}
        asked = self._labels_asked(pods)
        for pod in pods:
            labels = {key: pod.labels[key] for key in asked if key in pod.labels}
            shapes.setdefault(repr((pod.ref.namespace, pod.request, pod.rules, labels)), []).append(pod)
        key = repr(sorted((shape, len(alike)) for shape, alike in shapes.items()))
        if key in self._hopeless:
            return self._hopeless[key]
        asks = [_ask(alike, asked) for alike in shapes.values()]
        start = len(self._view.taken)
        short = place(self._view, asks, self._strategy)
        if short is not None:
            self._hopeless[key] = short
            return short
        left = {id(ask): iter(alike) for ask, alike in zip(asks, shapes.values(), strict=True)}
        found: list[PodPlace] = []
        for taken in self._view.taken[start:]:
            for index in range(taken.count):
                pod = next(left[id(taken.ask)])
                found.append(PodPlace(pod.ref, taken.node, taken.devices[index : index + 1]))
        return sorted(found, key=lambda each: (each.ref.namespace, each.ref.name))

    def _labels_asked(self, pods: Iterable[PodState]) -> list[str]:
        """The labels of pods that rules between pods look at: pods that differ in others only are alike."""
        ledger = self._view.ledger
        rules: list[PodRules] = [pod.rules for pod in pods]
        rules += [ledger.occupants[key].rules for key in ledger.averse]
        rules += [taken.ask.rules for taken in self._view.taken if taken.ask.rules.apart]
        return pod_labels_asked(rules)

    def _placed(self, gangs: list[PodGang], places: list[PodPlace]) -> PodsPlaced:
        said = [gang.declared for gang in gangs if gang.declared is not None]
        return PodsPlaced(
            cause=max(gang.cause for gang in gangs),
            gangs=tuple(gang.key for gang in gangs if gang.declared is not None),
            cycle=max(1, *(gang.cycle for gang in gangs)) if gangs else 1,
            pods=tuple(places),
            bind_until=self._until,
            complaints=tuple(dict.fromkeys(text for each in said for text in each.complaints)),
        )

    # --- telling ----------------------------------------------------------------------------------------------

    def _tell(self, unit: Unit, gang: PodGang, why: Why) -> Iterator[Decision]:
        """What a gang is told now, if it is due."""
        now, told = self._state.now, gang.told
        if why.patient and now < gang.since + GRACE_MS:
            return
        tried = why.reason in ("no_nodes", "gave_way", "starved")
        over = tried and bool(gang.cycle_since) and now >= round_ends(gang)
        event = GangHeldBack(
            cause=gang.cause,
            gang=gang.key if gang.declared is not None else "",
            cycle=max(gang.cycle, 1) if tried else gang.cycle,
            reason="timed_out" if over and why.reason == "no_nodes" else why.reason,
            text=why.text,
            pods=tuple(self._state.pods.pods[uid].ref for uid in self._named(gang)),
            waiting=len(gang.waiting),
            minimum=unit.needs.get(gang.key, 0),
            shortage=why.shortage,
            by=why.by,
            complaints=gang.declared.complaints if gang.declared is not None else (),
        )
        if told is not None and not over:
            same = told.reason == why.reason or (told.reason == "timed_out" and why.reason == "no_nodes")
            if same and (told.said == said(event) or now < told.at + TELL_AGAIN_MS):
                return
        yield event

    def _named(self, gang: PodGang) -> list[str]:
        pods = self._state.pods.pods
        return sorted(gang.waiting, key=lambda uid: pods[uid].ref.name)[:MAX_PODS_NAMED]


def round_ends(gang: PodGang) -> int:
    """Log time at which the round of a gang is over."""
    first = gang.declared.timeout_ms if gang.declared is not None else 600_000
    return gang.cycle_since + (first << min(max(gang.cycle - 1, 0), LONGEST_ROUND))


def _ask(alike: list[PodState], asked: list[str]) -> Ask:
    pod = alike[0]
    labels = {key: pod.labels[key] for key in asked if key in pod.labels}
    return Ask(pod.ref.name, len(alike), pod.request, pod.ref.namespace, replace(pod.rules, labels=labels))


def _by_gang(state: AdmitterState, pods: list[PodState]) -> Iterator[tuple[PodGang, list[PodState]]]:
    found: dict[str, list[PodState]] = {}
    for pod in pods:
        found.setdefault(state.pods.gang_of[pod.ref.uid], []).append(pod)
    for key, each in found.items():
        yield state.pods.gangs[key], each
