"""KAI queues compiled to one quota tree: the queues in force, those that are disabled and why, and what looks odd.

A queue that cannot be used (its parent is missing, its numbers are none, its parents lead in a circle) disables itself
and what is below it, and nothing else. Quotas that exceed their parent's are a warning: nothing guarantees them then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

from msgspec import Struct, field

from muster.core.quota.trees.rules import RuleError, read_usage, span_ms
from muster.core.quota.trees.tree import MAX_DEPTH, MAX_NODES, MAX_PATH
from muster.model.kaiqueue import KaiQueue
from muster.model.quota import DEFAULT_QUEUE_PRIORITY, KAI_ROOT, BrokenRule, QuotaNode
from muster.model.resources import EVERYTHING, MAX_AMOUNT, Vector, add_into, format_quantity
from muster.model.strategies import PLACEMENT, StrategyError, strategies, strategies_text
from muster.model.text import clean, shorten

WHOLE = 1000
UNITS: Mapping[str, int] = {"cpu": 1, "memory": 10**6}
"""resource -> base units in one of what a Queue counts in; WHOLE for any other."""
_NUMBER = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?")
_SHOWN_NAMES = 8


class Compiled(Struct, frozen=True):
    """What the queues of a cluster come to."""

    nodes: tuple[QuotaNode, ...]
    """The root, and the queues in force: parents before children, siblings by age."""
    disabled: dict[str, str] = field(default_factory=dict)
    """name of a queue that is not in force -> why, and what would help"""
    warnings: tuple[BrokenRule, ...] = ()
    rules: dict[str, int] = field(default_factory=dict)
    """field of Rules -> what the queues at the top say"""


def unit_of(resource: str) -> int:
    """How much a 1 in a Queue is, in base units."""
    return UNITS.get(resource, WHOLE)


def compile_queues(
    queues: Iterable[KaiQueue],
    units: Mapping[str, int] | None = None,
    broken: Mapping[str, str] | None = None,
    show: Callable[[int, str], str] = format_quantity,
) -> Compiled:
    """The tree of the queues, whatever their order.

    ``units``: other base units than a cluster's, for every resource; ``broken``: queues known to be no good, and why;
    ``show``: (amount, resource) as a text.
    """
    ordered = sorted(queues, key=lambda each: (each.created, each.name, each.ref.uid))
    named = {each.name: each for each in reversed(ordered)}  # of two of one name the older counts
    reader = _KaiQueueReader(units)
    known_wrong = broken or {}
    wrong = {name: why for name in sorted(named) if (why := known_wrong.get(name) or reader.read(named[name]))}
    disabled: dict[str, str] = {}
    for name in sorted(named):
        reason = _above(name, named, wrong)
        if reason:
            disabled[name] = clean(shorten(reason, 600))
    children: dict[str, list[KaiQueue]] = {}
    for each in ordered:
        if named.get(each.name) is each and each.name not in disabled:
            children.setdefault(each.parent, []).append(each)
    nodes: list[QuotaNode] = []
    walk: list[tuple[str, str, KaiQueue | None]] = [(KAI_ROOT, "", None)] if named else []
    while walk:
        path, name, queue = walk.pop()
        below = children.get(name, [])
        paths = tuple(f"{path}/{child.name}" for child in below)
        nodes.append(reader.node(path, paths, queue))
        walk += [(child_path, child.name, child) for child_path, child in reversed([*zip(paths, below, strict=True)])]
    rules, said_twice = _rules(children, reader)
    return Compiled(tuple(nodes), disabled, (*_odd(nodes, show), *said_twice), rules)


def _rules(
    children: Mapping[str, Sequence[KaiQueue]], reader: _KaiQueueReader
) -> tuple[dict[str, int], list[BrokenRule]]:
    """What holds of all queues: of each rule what the oldest queue at the top says of it, and what that leaves out."""
    rules: dict[str, int] = {}
    speaker: dict[str, str] = {}
    odd: list[BrokenRule] = []
    for parent, below in children.items():
        for queue in below:
            for name, value in reader.rules[queue.name].items():
                if parent:
                    said = "its annotations about past usage count on a queue without a parent only"
                    odd.append(BrokenRule(queue.name, "rule", said))
                    break
                if rules.setdefault(name, value) != value:
                    key = f"muster.dev/{name.removesuffix('_ms').replace('_', '-')}"
                    said = f"queue {speaker[name]} is older and says otherwise of {key}: that counts"
                    odd.append(BrokenRule(queue.name, "rule", said))
                speaker.setdefault(name, queue.name)
    return rules, odd


def _above(name: str, named: Mapping[str, KaiQueue], wrong: Mapping[str, str]) -> str:
    """Why a queue is not in force, by its own fault or one above it; empty when it is."""
    chain = [name]
    while True:
        each = chain[-1]
        blame = "" if each == name else f"it is below {each}, which is disabled: "
        if each in wrong:
            return blame + wrong[each]
        parent = named[each].parent
        if not parent:
            break
        if parent not in named:
            known = sorted(named)
            some = ", ".join(known[:_SHOWN_NAMES]) + (", …" if len(known) > _SHOWN_NAMES else "")
            return f"{blame}parentQueue {parent!r} does not exist; create it, or name one of {some}"
        if parent in chain:
            circle = " → ".join([*chain[chain.index(parent) :], parent])
            return f"parentQueue leads in a circle: {circle}; leave it out on one of them"
        chain.append(parent)
    if len(chain) >= MAX_DEPTH:
        return f"it is {len(chain)} levels deep, more than {MAX_DEPTH - 1}; hang it under a queue further up"
    if sum(len(each) + 1 for each in chain) + len(KAI_ROOT) > MAX_PATH:
        return f"the names from the top down to it are longer than {MAX_PATH} characters; shorten them"
    return f"there are {len(named)} queues, more than {MAX_NODES}; delete some" if len(named) > MAX_NODES else ""


class _KaiQueueReader:
    def __init__(self, units: Mapping[str, int] | None) -> None:
        self.units = units
        self.amounts: dict[str, tuple[Vector, Vector, Vector]] = {}
        self.rules: dict[str, dict[str, int]] = {}

    def read(self, queue: KaiQueue) -> str:
        """Take in the numbers of a queue; what is wrong with them, naming field, value and way out."""
        if not queue.quota and not queue.limit:
            return "spec.resources: resources must be specified; write quota, limit and overQuotaWeight for each"
        found: list[Vector] = []
        for which, texts in (("quota", queue.quota), ("limit", queue.limit), ("overQuotaWeight", queue.weight)):
            vector: Vector = {}
            for resource, text in texts.items():
                amount = self._amount(resource, text, weight=which == "overQuotaWeight")
                if amount is None:
                    of = f" of {resource}" if resource else ""
                    way_out = (
                        "0 for no surplus, or more" if which == "overQuotaWeight" else "0 or more, or -1 for unlimited"
                    )
                    return f"spec.resources: {which} {text}{of} is no amount; write {way_out}"
                vector[resource] = amount
            found.append(vector)
        for which, text in (("preempt", queue.preempt_min_runtime), ("reclaim", queue.reclaim_min_runtime)):
            try:
                span_ms(text or "0")
            except RuleError as err:
                return f"spec.{which}MinRuntime: {err}"
        try:
            strategies(queue.placement)
        except StrategyError as err:
            return f"annotation {PLACEMENT}: {err}"
        self.amounts[queue.name] = (found[0], found[1], found[2])
        self.rules[queue.name], wrong = read_usage(queue.rules)
        return wrong

    def _amount(self, resource: str, text: str, *, weight: bool) -> int | None:
        """In base units, what is below one of them left out; -1 for -1; None when it is no amount."""
        if not _NUMBER.fullmatch(text):
            return None
        number = Fraction(text)
        if number == -1 and not weight:
            return -1
        unit = WHOLE if weight and self.units is None else (self.units or {}).get(resource) or unit_of(resource)
        amount = int(number * unit)
        return amount if number >= 0 and amount <= MAX_AMOUNT else None

    def node(self, path: str, children: tuple[str, ...], queue: KaiQueue | None) -> QuotaNode:
        if queue is None:
            return QuotaNode(path, children=children)
        quota, limit, weight = self.amounts[queue.name]
        return QuotaNode(
            path,
            guaranteed={name: EVERYTHING if amount < 0 else amount for name, amount in quota.items() if amount},
            limit={name: amount for name, amount in limit.items() if amount >= 0},
            children=children,
            weight=weight,
            priority=DEFAULT_QUEUE_PRIORITY if queue.priority is None else queue.priority,
            title=queue.title,
            created=queue.created,
            uid=queue.ref.uid,
            preempt_min_run_ms=span_ms(queue.preempt_min_runtime or "0"),
            reclaim_min_run_ms=span_ms(queue.reclaim_min_runtime or "0"),
            placement=strategies_text(strategies(queue.placement)),
        )


def _odd(nodes: Iterable[QuotaNode], show: Callable[[int, str], str]) -> list[BrokenRule]:
    """Quotas that nothing guarantees, and limits that make a quota useless."""
    known = {node.path: node for node in nodes}
    found: list[BrokenRule] = []
    for node in known.values():
        for name, limit in sorted(node.limit.items()):
            quota = node.guaranteed.get(name, 0)
            if EVERYTHING > quota > limit:
                said = f"quota {_named(name)}{show(quota, name)} is over its limit {show(limit, name)}: never reached"
                found.append(BrokenRule(node.path, "quota_over_limit", said))
        if node.path == KAI_ROOT:
            continue
        total: Vector = {}
        for child in node.children:
            add_into(total, known[child].guaranteed)
        for name in sorted(total):
            if node.guaranteed.get(name, 0) < total[name] < EVERYTHING:
                said = (
                    f"the quotas of its children sum up to {_named(name)}{show(total[name], name)}, over its own "
                    f"{show(node.guaranteed.get(name, 0), name)}: they cannot all be guaranteed; lower them"
                )
                found.append(BrokenRule(node.path, "over_subscribed", said))
    return found


def _named(resource: str) -> str:
    """The resource in front of an amount; a table of plain numbers has none."""
    return f"{resource} " if resource else ""
