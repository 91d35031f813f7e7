"""Queues in a file, and their shares: KAI Queues, an ElasticQuotaTree, or a table of queues and amounts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct, field

from muster.core.objects.kaiqueue import RESOURCES, read_kai_queue
from muster.core.objects.meta import UnreadableError, is_name
from muster.core.quota.division.dividing import Law
from muster.core.quota.trees import kaisource
from muster.model.kaiqueue import KaiQueue
from muster.model.keys import Ref
from muster.model.language import listed, say
from muster.model.problem import FieldProblem, problem
from muster.model.quota import QuotaNode
from muster.model.resources import EVERYTHING, QuantityError, Vector, in_bytes, parse_quantity
from muster.told.wording import problems
from muster.told.wording.queuewords import UNBOUNDED
from muster.tracesim.documents import NO_YAML, flaw, too_deep
from muster_cli.brokenrules import BrokenRule, in_words
from muster_cli.exits import USAGE, CliError
from muster_cli.manifests import Manifest, read_manifests
from muster_cli.textfiles import text_of

SCALE = 10**6
"""Parts of one unit of the file: numbers are exact to six digits."""
KAI_GROUP = "scheduling.run.ai/"
PLAIN = ""
"""The resource of a table whose amounts are plain numbers."""
USAGE_WHOLE = 10**12
FIELDS = ("quota", "limit", "weight", "request", "usage")
ALIASES = {
    "parentQueue": "parent",
    "overQuotaWeight": "weight",
    "displayName": "display_name",
    "preemptMinRuntime": "preempt_min_runtime",
    "reclaimMinRuntime": "reclaim_min_runtime",
}
KNOWN = tuple(dict.fromkeys(("name", "parent", "priority", *FIELDS, "uid", "created", *ALIASES.values())))
SHORT = {long: short for short, long in RESOURCES.items()}
UNITS = {
    "gpus": ("gpu", Fraction(1)),
    "cpu_milli": ("cpu", Fraction(1)),
    "memory_mib": ("memory", Fraction(1 << 20, 10**6)),
}
"""Resources by the names of `muster decide` -> (the name in a queue, the size of a unit there)"""


class ShareQuestion(Struct):
    """What a file says, ready to be divided. Amounts in SCALE parts of a unit of the file."""

    nodes: list[QuotaNode]
    total: Vector
    requests: dict[str, Vector]
    """path -> request"""
    usage: dict[str, Vector] = field(default_factory=dict)
    laws: dict[str, Law] = field(default_factory=dict)
    disabled: dict[str, str] = field(default_factory=dict)
    warnings: list[BrokenRule] = field(default_factory=list)
    plain: bool = False
    """Amounts are plain numbers, not one for each resource."""


class Given(Struct):
    """The known facts of the queues before they are compiled."""

    queues: list[KaiQueue]
    total: dict[str, Fraction]
    requests: dict[str, dict[str, Fraction]] = field(default_factory=dict)
    usage: dict[str, dict[str, Fraction]] = field(default_factory=dict)
    k: Fraction = Fraction(1)
    plain: bool = False
    broken: dict[str, FieldProblem] = field(default_factory=dict)
    """name of a queue -> the error in the file"""
    warnings: list[BrokenRule] = field(default_factory=list)


def read_text(path: Path) -> tuple[str, str]:
    """(the text, the name of the source); ``-`` is stdin. Raises CliError."""
    return text_of(str(path)), say("standard input") if str(path) == "-" else str(path)


def is_table(text: str, origin: str) -> dict[str, Any] | None:
    """The document, for a table of queues; None for Kubernetes objects. Raises CliError when the text is no YAML."""
    try:
        if too_deep(text):
            raise CliError(say("{origin} is nested too deeply", origin=origin), USAGE)
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except NO_YAML as err:
        raise CliError(say("{origin} is neither YAML nor JSON: {err}", origin=origin, err=flaw(err)), USAGE) from err
    if not documents:
        raise CliError(
            say("{origin} is empty; write Queues, an ElasticQuotaTree, or {{total, queues: [...]}}", origin=origin),
            USAGE,
        )
    table = documents[0]
    return table if len(documents) == 1 and isinstance(table, dict) and "queues" in table else None


def read_table(table: Mapping[str, Any], origin: str) -> Given:
    """``{total, queues: [{name, parent, quota, request, weight, priority, limit, usage}], k}``."""
    rows = table["queues"]
    if isinstance(rows, Mapping):
        rows = [{"name": name, **(row or {})} for name, row in rows.items()]
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise CliError(say("{origin}: queues must be a list of {{name, ...}}", origin=origin), USAGE)
    if "total" not in table:
        raise CliError(
            say("{origin}: total is missing; write what there is to share, as `total: 8` or {{gpu: 8}}", origin=origin),
            USAGE,
        )
    plain = not isinstance(table["total"], Mapping)
    given = Given([], _amounts(table["total"], say("{origin}: total", origin=origin)), plain=plain)
    given.k = _number(table.get("k", 1), say("{origin}: k", origin=origin))
    if given.k < 0:
        raise CliError(
            say("{origin}: k is {k}; write 0 for no heed of past usage, or more", origin=origin, k=table["k"]), USAGE
        )
    for key in sorted(set(map(str, table)) - {"total", "queues", "k"}):
        raise CliError(say("{origin}: {key!r} is unknown; known are total, queues, k", origin=origin, key=key), USAGE)
    if any(amount < 0 for amount in given.total.values()):
        raise CliError(say("{origin}: total is {total}; write 0 or more", origin=origin, total=table["total"]), USAGE)
    names: set[str] = set()
    for number, row in enumerate(rows, start=1):
        name = str(row.get("name") or "")
        if not name or "/" in name:
            raise CliError(
                say(
                    "{origin}: queue {number} has the name {name!r}; write one without a slash",
                    origin=origin,
                    number=number,
                    name=name,
                ),
                USAGE,
            )
        if name in names:
            raise CliError(
                say("{origin}: queue {name} is written twice; leave one out", origin=origin, name=name), USAGE
            )
        names.add(name)
        _take_row(given, name, {ALIASES.get(str(key), str(key)): value for key, value in row.items()})
    return given


def _take_row(given: Given, name: str, row: dict[str, Any]) -> None:
    for key in sorted(row.keys() - set(KNOWN)):
        raise CliError(
            say("queue {name}: {key!r} is unknown; known are {known}", name=name, key=key, known=listed(KNOWN)), USAGE
        )
    texts: dict[str, dict[str, str]] = {}
    defaults = {"quota": "0", "limit": "-1", "weight": "1"}
    for which in FIELDS:
        try:
            amounts = (
                _amounts(row[which], say("{which} of queue {name}", which=which, name=name), given)
                if row.get(which) is not None
                else {}
            )
        except CliError as err:
            given.broken[name] = problem("", "said", said=str(err))
            amounts = {}
        if which in defaults:
            filled = dict.fromkeys(given.total, defaults[which])
            texts[which] = filled | {resource: _decimal(amount) for resource, amount in amounts.items()}
        elif any(amount < 0 for amount in amounts.values()):
            text = say(
                "{which} of queue {name} is {amount}; write 0 or more", which=which, name=name, amount=row[which]
            )
            given.broken[name] = problem("", "said", said=text)
        elif amounts:
            (given.requests if which == "request" else given.usage)[name] = amounts
    priority = row.get("priority")
    if priority is not None and (isinstance(priority, bool) or not isinstance(priority, int)):
        text = say(
            "priority of queue {name} is {priority!r}; write a whole number, the higher the earlier",
            name=name,
            priority=priority,
        )
        given.broken[name] = problem("", "said", said=text)
        priority = None
    given.queues.append(
        KaiQueue(
            ref=Ref("Queue", "", name, str(row.get("uid") or "")),
            rv=1,
            created=row["created"] if isinstance(row.get("created"), int) else 0,
            parent=str(row.get("parent") or ""),
            priority=priority,
            title=str(row.get("display_name") or ""),
            quota=texts["quota"],
            limit=texts["limit"],
            weight=texts["weight"],
        )
    )


def read_queues(manifests: list[Manifest]) -> Given:
    """KAI Queues as the cluster would read the queues; requests are not known from the manifests."""
    given = Given([], {})
    for number, manifest in enumerate(manifests, start=1):
        meta = {**manifest.body["metadata"], "name": manifest.name or f"generated-{number}"}
        meta = {"uid": meta["name"], "resourceVersion": "1", **meta}
        try:
            queue = read_kai_queue(json.dumps({**manifest.body, "metadata": meta}, default=str).encode())
        except UnreadableError as err:
            if not is_name(manifest.name):
                raise CliError(f"{manifest}: {problems.line(err.problem)}", USAGE) from err
            spec = manifest.body.get("spec")
            parent = str(spec.get("parentQueue") or "") if isinstance(spec, Mapping) else ""
            given.broken[manifest.name] = err.problem
            given.queues.append(KaiQueue(Ref("Queue", "", manifest.name, "unreadable"), 1, parent=parent))
            continue
        given.queues.append(queue)
    return given


def compiled(given: Given) -> ShareQuestion:
    """The queues in force, with the requests of each: the whole capacity where none is given."""
    resources = {name for queue in given.queues for name in queue.quota} | given.total.keys()
    units = dict.fromkeys(resources, SCALE)
    result = kaisource.compile_queues(given.queues, units, given.broken)
    nodes = list(result.nodes)
    total = {name: int(amount * SCALE) for name, amount in given.total.items()}
    requests: dict[str, Vector] = {}
    usage: dict[str, Vector] = {}
    for node in nodes:
        asked = given.requests.get(node.name)
        if asked is not None or not node.children:
            told = {name: int(amount * SCALE) for name, amount in (asked or {}).items()}
            requests[node.path] = told if asked is not None else dict.fromkeys(sorted(total), UNBOUNDED)
        used = given.usage.get(node.name, {})
        usage[node.path] = {name: int(amount * USAGE_WHOLE) for name, amount in used.items()}
    k = (given.k.numerator, given.k.denominator)
    laws = {name: Law(1 if in_bytes(name) else SCALE, k, USAGE_WHOLE) for name in total}
    disabled = {name: problems.line(why, _shown) for name, why in result.disabled.items()}
    warnings = [*given.warnings, *(in_words(warning, _shown) for warning in result.warnings)]
    if nodes:
        warnings += _beyond_total(nodes, total)
    return ShareQuestion(nodes, total, requests, usage, laws, disabled, warnings, given.plain)


def total_of(given: Given) -> tuple[dict[str, Fraction], str]:
    """(the sum of the quotas of the top queues, a warning), where no total is given."""
    tops = [queue for queue in given.queues if not queue.parent and queue.name not in given.broken]
    total: dict[str, Fraction] = {}
    for resource in sorted({name for queue in tops for name in queue.quota}):
        amounts = [Fraction(queue.quota.get(resource, "0")) for queue in tops if _is_number(queue.quota.get(resource))]
        if any(amount < 0 for amount in amounts):
            continue
        total[resource] = Fraction(sum(amounts))
    told = say("it is not said what there is to share: taken to be the quotas of the top queues; say it with --total")
    return total, told


def parse_amounts(text: str, option: str) -> dict[str, Fraction]:
    """``gpu=8,cpu=64000`` as of an option. Raises CliError."""
    totals: dict[str, Fraction] = {}
    for part in text.split(","):
        name, equals, amount = part.partition("=")
        if not equals or not name.strip():
            raise CliError(
                say("{option} {words}: write it like gpu=8,cpu=64000,memory=512000", option=option, words=text), USAGE
            )
        name = name.strip()
        number = _is_number(amount.strip())
        value = _number(amount.strip(), option) if number else _amount(amount.strip(), name, f"{option} {name}")
        if value < 0:
            raise CliError(
                say("{option} {words}: {name} is negative; write 0 or more", option=option, words=text, name=name),
                USAGE,
            )
        totals[RESOURCES.get(name, name)] = value
    return totals


def shown_name(resource: str) -> str:
    """As the file calls it."""
    return SHORT.get(resource, resource)


def _beyond_total(nodes: list[QuotaNode], total: Vector) -> Iterator[BrokenRule]:
    known = {node.path: node for node in nodes}
    for name in sorted(total):
        quotas = sum(known[child].guaranteed.get(name, 0) for child in nodes[0].children)
        if total[name] < quotas < EVERYTHING:
            text = say(
                "the quotas of the top queues sum up to {quotas}{unit}, over the total of {total}: they "
                "cannot all be guaranteed; lower them or add more",
                quotas=_plain(quotas),
                unit=" " + shown_name(name) if name else "",
                total=_plain(total[name]),
            )
            yield BrokenRule("total", "over_subscribed", text)


def _shown(amount: int, _resource: str) -> str:
    return _plain(amount)


def _plain(amount: int) -> str:
    return _decimal(Fraction(amount, SCALE))


def _amounts(value: Any, where: str, given: Given | None = None) -> dict[str, Fraction]:
    """A number, or one for each resource. Raises CliError naming where, the value and the way out."""
    if isinstance(value, Mapping):
        if given is not None and given.plain:
            raise CliError(
                say(
                    "{where} is {amount}, but total is one number; write one",
                    where=where,
                    amount=json.dumps(value, default=str),
                ),
                USAGE,
            )
        weights = {}
        for key, amount in value.items():
            short, unit = UNITS.get(str(key), (str(key), Fraction(1)))
            name = RESOURCES.get(short, short)
            number = _amount(amount, short, f"{where}, {key}")
            weights[name] = number if number < 0 or "weight" in where else number * unit
            if given is not None and name not in given.total:
                raise CliError(
                    say(
                        "{where} has {key}, and total has not; add it there, or leave it out here", where=where, key=key
                    ),
                    USAGE,
                )
        return weights
    number = _amount(value, PLAIN, where)
    return {PLAIN: number} if given is None or given.plain else dict.fromkeys(given.total, number)


def _amount(value: Any, resource: str, where: str) -> Fraction:
    """A number as a Queue counts (cpu in thousandths, memory in 10^6 bytes), or a Kubernetes quantity as a text."""
    if not isinstance(value, str) or not resource or value == "-1":
        return _number(value, where)
    name = RESOURCES.get(resource, resource)
    try:
        return Fraction(parse_quantity(value, name), kaisource.unit_of(name))
    except QuantityError as err:
        raise CliError(f"{where}: {problems.say(err.problem)}", USAGE) from None


def _number(value: Any, where: str) -> Fraction:
    text = str(value)
    if isinstance(value, bool) or not _is_number(text):
        raise CliError(say("{where} is {amount!r}; write a number", where=where, amount=value), USAGE)
    return Fraction(text)


_NUMBER = re.compile(r"[+-]?[0-9_.]{1,50}([eE][+-]?[0-9]{1,2})?(/[0-9]{1,30})?")


def _is_number(text: str | None) -> bool:
    try:
        # An exponent of nine digits is a number that takes the machine minutes to write down.
        return text is not None and _NUMBER.fullmatch(text) is not None and abs(Fraction(text)) < 10**18
    except (ValueError, ZeroDivisionError):
        return False


def _decimal(number: Fraction) -> str:
    """Exact where six digits are enough, else rounded down."""
    scaled = int(number * SCALE)
    sign, scaled = ("-", -scaled) if scaled < 0 else ("", scaled)
    text = f"{scaled // SCALE}.{scaled % SCALE:06d}".rstrip("0").rstrip(".")
    return sign + text


def manifests_of(text: str, origin: str) -> tuple[list[Manifest], list[Manifest]]:
    """(the KAI Queues of a file, its ElasticQuotaTrees)."""
    manifests = read_manifests(text, origin)
    queues = [
        manifest for manifest in manifests if manifest.kind == "Queue" and manifest.api_version.startswith(KAI_GROUP)
    ]
    trees = [manifest for manifest in manifests if manifest.kind == "ElasticQuotaTree"]
    if bool(queues) == bool(trees):
        message = (
            say(
                "{origin} holds both Queues and ElasticQuotaTrees: put one of them into a file of its own",
                origin=origin,
            )
            if queues
            else say(
                "{origin} holds no Queue and no ElasticQuotaTree: put {version} Queues, a tree or {{total, queues}} "
                "into it",
                origin=origin,
                version=f"{KAI_GROUP}v2",
            )
        )
        raise CliError(message, USAGE)
    return queues, trees
