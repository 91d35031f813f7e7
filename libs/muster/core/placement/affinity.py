"""Rules between pods: affinity, anti-affinity, topology spread, host ports.

The rules are checked per node and kept current as places are taken. Only asks with such rules pay for the check: other
asks are placed by bucket.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from muster.core.placement.matching import UNSCHEDULABLE, ports_clash, selects, suits_node, term_matches, untolerated
from muster.core.placement.view import Ask, View
from muster.model.places import ObstacleCode
from muster.model.placing import PodRules, PodTerm, Spread

Domain = tuple[str, str]
"""(label, value)."""


class _Neighbour(Struct, frozen=True):
    node: str
    namespace: str
    count: int
    rules: PodRules


class PodAffinity:
    """The effect of the existing pods, and of the pods placed so far, on further pods of one ask."""

    def __init__(self, view: View, ask: Ask) -> None:
        self.ask = ask
        self._ledger = view.ledger
        rules = ask.rules
        self._rejected: dict[str, dict[str, None]] = {}
        """Label -> values where an existing pod keeps the pods of this ask away."""
        self._avoided: set[Domain] = set()
        self._ports: set[str] = set()
        self._joined: list[dict[Domain, int]] = [{} for _ in rules.together]
        self._spread: list[dict[str, int]] = [self._domains(spread) for spread in rules.spread]
        self.attracts_itself = bool(rules.together) and self._all_together(ask.namespace, rules.labels)
        for other in self._neighbours(view):
            self._meet(other)

    @staticmethod
    def concerns(view: View, ask: Ask) -> bool:
        """Whether any rule between pods has a say in where pods of this ask go."""
        rules = ask.rules
        if rules.together or rules.apart or rules.spread or rules.ports:
            return True
        known = (view.ledger.occupants[key] for key in view.ledger.averse)
        return any(
            term_matches(term, neighbour.namespace, ask.namespace, rules.labels)
            for neighbour in known
            for term in neighbour.rules.apart
        ) or any(
            term_matches(term, neighbour.ask.namespace, ask.namespace, rules.labels)
            for neighbour in view.taken
            for term in neighbour.ask.rules.apart
        )

    def obstacle(self, node: str) -> ObstacleCode | None:
        """Why no pod of the ask may join a node now; None when a pod may join."""
        rules, labels = self.ask.rules, self._ledger.nodes[node].labels
        if node in self._ports:
            return "ports"
        for counts, spread in zip(self._spread, rules.spread, strict=True):
            value = labels.get(spread.key)
            if value is None:
                return "spread_label"
            own = selects(spread.selector, rules.labels)
            least = min(counts.values(), default=0) if len(counts) >= spread.domains else 0
            if counts.get(value, 0) + own - least > spread.skew:
                return "spread"
        if not self._welcome(labels):
            return "affinity"
        for term in rules.apart:
            if term.key in labels and (term.key, labels[term.key]) in self._avoided:
                return "anti_affinity"
        if any(labels.get(key) in values for key, values in self._rejected.items()):
            return "existing_anti_affinity"
        return None

    def _welcome(self, labels: dict[str, str]) -> bool:
        terms = self.ask.rules.together
        if not terms:
            return True
        if any(term.key not in labels for term in terms):
            return False
        if not any(self._joined):
            return self.attracts_itself
        return all((term.key, labels[term.key]) in joined for term, joined in zip(terms, self._joined, strict=True))

    @property
    def unattached(self) -> bool:
        """Whether the ask's pods attract only each other so far: no wanted neighbour exists."""
        return self.attracts_itself and not any(self._joined)

    def joined(self, node: str) -> None:
        """Note one more pod of the ask on a node."""
        self._meet(_Neighbour(node, self.ask.namespace, 1, self.ask.rules))

    # --- counting ---------------------------------------------------------------------------------------------

    def _neighbours(self, view: View) -> Iterator[_Neighbour]:
        """Pods that could matter: pods in the namespaces of the rules, pods with own rules, pods on the same ports."""
        rules, ledger = self.ask.rules, view.ledger
        terms = (*rules.together, *rules.apart)
        if rules.ports or any(term.everywhere for term in terms):
            keys = list(ledger.occupants)
        else:
            wanted = {self.ask.namespace, *(name for term in terms for name in term.namespaces)}
            keys = (
                [key for name in sorted(wanted) for key in ledger.namespaces.get(name, ())]
                if terms or rules.spread
                else []
            )
            known = set(keys)
            keys += [key for key in ledger.averse if key not in known]
        for key in keys:
            occupant = ledger.occupants[key]
            if ledger.nodes[occupant.node].uid:
                yield _Neighbour(occupant.node, occupant.namespace, occupant.count, occupant.rules)
        for taken in view.taken:
            yield _Neighbour(taken.node, taken.ask.namespace, taken.count, taken.ask.rules)

    def _meet(self, other: _Neighbour) -> None:
        rules, labels = self.ask.rules, self._ledger.nodes[other.node].labels
        theirs = other.rules.labels
        if rules.ports and ports_clash(rules.ports, other.rules.ports):
            self._ports.add(other.node)
        for term in rules.apart:
            if term.key in labels and term_matches(term, self.ask.namespace, other.namespace, theirs):
                self._avoided.add((term.key, labels[term.key]))
        for term in other.rules.apart:
            if term.key in labels and term_matches(term, other.namespace, self.ask.namespace, rules.labels):
                self._rejected.setdefault(term.key, {})[labels[term.key]] = None
        if rules.together and self._all_together(other.namespace, theirs):
            for term, counts in zip(rules.together, self._joined, strict=True):
                if term.key in labels:
                    counts[term.key, labels[term.key]] = counts.get((term.key, labels[term.key]), 0) + other.count
        for spread, counted in zip(rules.spread, self._spread, strict=True):
            value = labels.get(spread.key)
            same = other.namespace == self.ask.namespace and selects(spread.selector, theirs)
            if same and value in counted and self._counts(spread, other.node):
                counted[value] += other.count

    def _all_together(self, namespace: str, labels: dict[str, str]) -> bool:
        terms: tuple[PodTerm, ...] = self.ask.rules.together
        return all(term_matches(term, self.ask.namespace, namespace, labels) for term in terms)

    def _domains(self, spread: Spread) -> dict[str, int]:
        """The domains a spread rule compares."""
        counts: dict[str, int] = {}
        for name, node in self._ledger.nodes.items():
            if node.uid and spread.key in node.labels and self._counts(spread, name):
                counts[node.labels[spread.key]] = 0
        return counts

    def _counts(self, spread: Spread, name: str) -> bool:
        """Whether a node takes part in a spread rule."""
        node, rules = self._ledger.nodes[name], self.ask.rules
        if any(spread.key not in node.labels for spread in rules.spread):
            return False
        if spread.honor_affinity and not suits_node(rules, node.labels, name):
            return False
        taints = node.taints if node.schedulable else (*node.taints, UNSCHEDULABLE)
        return not spread.honor_taints or untolerated(taints, rules.tolerations) is None
