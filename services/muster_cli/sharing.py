"""What queues in a file would share: the division, as values for people and for programs. Pure."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from msgspec import Struct, field

from muster.core.quota.division.dividing import UNLIMITED, Divided, asked_above, divide_tree
from muster.core.quota.ledger.shares import Shares
from muster.model.language import say
from muster.model.quota import QuotaNode, QuotaTree
from muster.model.resources import format_quantity
from muster.told.wording.queuewords import UNBOUNDED, why_share
from muster_cli.brokenrules import BrokenRule
from muster_cli.exits import VIOLATED, CliError
from muster_cli.manifests import Manifest
from muster_cli.quotafiles import lint
from muster_cli.sharefiles import SCALE, USAGE_WHOLE, ShareQuestion, shown_name

Number = int | float | str


class ShareRow(Struct, frozen=True):
    """One queue and one resource; amounts in the units of the file, None for a request without a bound."""

    queue: str
    parent: str
    priority: int
    resource: str
    guarantee: Number
    request: Number | None
    weight: Number
    limit: Number
    fair_share: Number
    allocatable: Number
    why: str
    depth: int = 0


class Shared(Struct):
    """The answer."""

    total: dict[str, Number]
    rows: list[ShareRow]
    disabled: dict[str, str] = field(default_factory=dict)
    warnings: list[BrokenRule] = field(default_factory=list)
    plain: bool = False


def of_queues(asked: ShareQuestion) -> Shared:
    """KAI queues, by their rules."""
    requests = asked_above(asked.nodes, asked.requests)
    divided = divide_tree(asked.nodes, asked.total, requests, asked.usage, asked.laws)
    known = {node.path: node for node in asked.nodes}
    rows = [
        _row(known[path], resource, part, asked)
        for path, of_path in divided.items()
        for resource, part in of_path.items()
    ]
    total: dict[str, Number] = {shown_name(name): _number(amount) for name, amount in asked.total.items()}
    return Shared(total, rows, asked.disabled, asked.warnings, asked.plain)


def _row(node: QuotaNode, resource: str, divided: Divided, asked: ShareQuestion) -> ShareRow:
    sharer = divided.sharer
    parent = node.path.rpartition("/")[0].rpartition("/")[2] if node.path.count("/") > 1 else ""
    name = shown_name(resource)
    used = Fraction(asked.usage.get(node.path, {}).get(resource, 0), USAGE_WHOLE)
    usage = str(_plain(used)) if asked.laws[resource].k[0] else ""
    return ShareRow(
        queue=node.name,
        parent=parent,
        priority=node.priority,
        resource=name,
        guarantee=_number(sharer.quota),
        request=None if sharer.request >= UNBOUNDED else _number(sharer.request),
        weight=_number(sharer.weight),
        limit=_number(sharer.limit),
        fair_share=_number(divided.share.amount),
        allocatable=_number(divided.allocatable),
        why=why_share(divided, lambda amount: f"{_number(amount)}{' ' + name if name else ''}", usage=usage),
        depth=node.path.count("/") - 1,
    )


def of_tree(manifest: Manifest) -> Shared:
    """An ElasticQuotaTree if every queue asked for all there is, by its rules. Raises CliError."""
    checked = lint(manifest)
    if checked.broken or checked.tree is None:
        first = checked.broken[0]
        raise CliError(
            say(
                "{name} breaks {broken} rules: {first}; `muster quota lint` has all",
                name=checked.name,
                broken=len(checked.broken),
                first=first,
            ),
            VIOLATED,
        )
    tree: QuotaTree = checked.tree
    nodes = {node.path: node for node in tree.nodes}
    root = tree.nodes[0]
    divides = tree.rules.runtime == "weight"
    shares = Shares()
    shares.install(nodes, weighted=True)
    for node in tree.nodes:
        if not node.children:
            shares.ask(nodes, node.path, {name: node.limit.get(name, root.limit[name]) for name in shares.names}, 1)
    rows = []
    for node in tree.nodes:
        for name in shares.names:
            share, most = shares.runtime[node.path][name], node.limit.get(name, root.limit[name])
            least = node.guaranteed.get(name, 0)
            rows.append(
                ShareRow(
                    queue=node.path,
                    parent=node.path.rpartition("/")[0],
                    priority=node.priority,
                    resource=name,
                    guarantee=format_quantity(least, name),
                    request=None,
                    weight=format_quantity(node.weight.get(name, most), name),
                    limit=format_quantity(most, name),
                    fair_share=format_quantity(share, name),
                    allocatable=format_quantity(share if divides else most, name),
                    why=_why_in_tree(name, least, share, most, divides=divides),
                    depth=node.path.count("/"),
                )
            )
    total: dict[str, Number] = {name: format_quantity(root.limit[name], name) for name in shares.names}
    return Shared(total, rows, {}, checked.warnings)


def _why_in_tree(name: str, least: int, share: int, most: int, *, divides: bool) -> str:
    text = say(
        "min {least}, and {rest} of the rest by weight",
        least=format_quantity(least, name),
        rest=format_quantity(max(0, share - least), name),
    )
    if not divides:
        text += say(
            "; this tree does not divide by weight, so it may use up to its max of {most}",
            most=format_quantity(most, name),
        )
    return text + say(", if every queue asked for all there is")


def record(shared: Shared) -> dict[str, Any]:
    """The record for programs: one entry a queue; amounts in the shape of the total, one or {resource: amount}."""
    queues: dict[str, dict[str, Any]] = {}
    columns = ("fair_share", "guarantee", "allocatable", "request", "limit", "weight", "why")
    for row in shared.rows:
        entry = queues.setdefault(
            row.queue, {"name": row.queue, "parent": row.parent or None, "priority": row.priority}
        )
        for column in columns:
            value = getattr(row, column)
            if shared.plain:
                entry[column] = value
            else:
                entry.setdefault(column, {})[row.resource] = value
    total: Any = shared.total
    if shared.plain:
        total = next(iter(shared.total.values()), 0)
    return {
        "total": total,
        "queues": list(queues.values()),
        "disabled": [{"name": name, "reason": reason} for name, reason in sorted(shared.disabled.items())],
        "warnings": [
            {"path": warning.path, "rule": warning.rule, "detail": warning.detail} for warning in shared.warnings
        ],
    }


def _number(amount: int) -> int | float:
    """An amount in SCALE parts, as a number; UNLIMITED stays -1."""
    return UNLIMITED if amount == UNLIMITED else _plain(Fraction(amount, SCALE))


def _plain(number: Fraction) -> int | float:
    return number.numerator if number.denominator == 1 else float(number)
