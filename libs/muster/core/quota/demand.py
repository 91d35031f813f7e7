"""The declarations of a workload, and the values of the ledger: demand, charge, queued request.

A workload declares its priority and whether it may be preempted (labels of KAI), and its longest run time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice, product
from typing import Literal, NamedTuple

from msgspec import Struct, field

from muster.core.objects.meta import (
    CHOICES,
    DRAIN,
    FLAVOR_WAIT,
    FLAVORS,
    KAI_PREEMPTIBILITY,
    KAI_PREEMPTION_DELAY,
    KAI_PRIORITY,
    KAI_QUEUE,
    KAI_STALENESS,
    NODE_WAIT,
    PREEMPTIBLE,
    RUN_TIME,
    STAMPS,
    TIMES,
    is_preemptible,
)
from muster.core.placement.matching import holds, untolerated
from muster.core.quota.trees.rules import RuleError, span_ms, span_or
from muster.events.base import Cause
from muster.model.demand import Demand
from muster.model.keys import path_chain
from muster.model.placing import GPU, PodRules
from muster.model.problem import FieldProblem, problem
from muster.model.problemcodes import ProblemCode
from muster.model.quota import JOBS, MACHINES, Flavor, FlavorNodes, Flavors, QuotaNode, QuotaTree, of_flavor
from muster.model.resources import Vector, add_into
from muster.model.strategies import inherited, strategies_text
from muster.model.workload import Workload

# --- declared ---------------------------------------------------------------------------------------------------------


CLASSES: Mapping[str, int] = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
"""The shipped PriorityClasses (deploy/kai): in force under these names also where not applied."""
DEFAULT_CLASS = "train"
FIRM = 100
"""Work of this priority and higher is not preemptible, and stays within its quota."""
PREEMPTIBILITY = ("preemptible", "non-preemptible")

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

AROUND_MS = 2 * MINUTE_MS
"""The time to start and to stop, beside each declared run time: the charge begins before the run and ends after it."""


def kai_class(workload: Workload) -> str:
    """The name of the PriorityClass: the workload's label, or else the class of the pods, or else ``train``."""
    return workload.labels.get(KAI_PRIORITY, "") or workload.priority_class or DEFAULT_CLASS


def kai_priority(workload: Workload, classes: Mapping[str, int]) -> int:
    """The priority: of the label's class, or else the number in the pods, or else of the pods' class, or else of
    ``train``.

    ``classes``: the existing PriorityClasses. A class that neither exists nor is shipped counts as ``train``.
    """
    name = kai_class(workload)
    if not workload.labels.get(KAI_PRIORITY) and workload.priority is not None:
        return workload.priority
    value = classes.get(name, CLASSES.get(name))
    return CLASSES[DEFAULT_CLASS] if value is None else value


def kai_preemptible(workload: Workload, priority: int | None) -> bool:
    """The value of the label; without a label, whether the priority is below FIRM."""
    declared = workload.labels.get(KAI_PREEMPTIBILITY, "")
    if declared in PREEMPTIBILITY:
        return declared == PREEMPTIBILITY[0]
    return (kai_priority(workload, {}) if priority is None else priority) < FIRM


def preemption_delay_ms(labels: Mapping[str, str]) -> int:
    """How long work waits before other work may be suspended for it; 0 without a declared time, and outside KAI
    queues.
    """
    declared = labels.get(KAI_PREEMPTION_DELAY, "")
    return span_or(declared, 0) if labels.get(KAI_QUEUE) else 0


def run_time_ms(labels: Mapping[str, str]) -> int:
    """The declared run time of a job, rounded up to few steps: jobs with one request and one step are refused together.

    The step is a minute up to 1 hour, 5 minutes up to 6 hours, half an hour up to a day, then an hour. 0 without a
    readable declaration.
    """
    declared = span_or(labels.get(RUN_TIME, ""), 0)
    step = HOUR_MS
    if declared <= HOUR_MS:
        step = MINUTE_MS
    elif declared <= 6 * HOUR_MS:
        step = 5 * MINUTE_MS
    elif declared <= DAY_MS:
        step = 30 * MINUTE_MS
    return -(-declared // step) * step


def flavor_wait_ms(labels: Mapping[str, str]) -> int:
    """How long a job waits for the first of its flavors, from its queueing; 0 without a readable declaration."""
    return span_or(labels.get(FLAVOR_WAIT, ""), 0) if FLAVOR_WAIT in labels else 0


def settings_left_out(workload: Workload) -> tuple[FieldProblem, ...]:
    """The settings of a workload with a value that no reader understands: each counts as absent."""
    labels, wrong = workload.labels, []
    for key in TIMES:
        text = labels.get(key, "")
        if text and not (key == KAI_STALENESS and text.startswith("-")):
            wrong += _left_out(key, text)
    if workload.elastic is not None:
        wrong += _left_out(DRAIN, workload.elastic.drain)
        wrong += _left_out(NODE_WAIT, workload.elastic.node_wait)
    choices = dict(CHOICES)
    choices |= dict.fromkeys(PREEMPTIBLE, ("true", "false"))
    choices[KAI_PREEMPTIBILITY] = PREEMPTIBILITY
    for key in sorted(labels):
        if key in choices and labels[key] not in choices[key]:
            code: ProblemCode = "neither" if len(choices[key]) == 2 else "none_of"
            because = problem("", code, value=labels[key], choices=choices[key])
            wrong.append(problem("", "annotation", because, key=key))
        elif key in STAMPS:
            wrong.append(problem("", "annotation", problem("", "not_a_time", value=labels[key]), key=key))
    return tuple(wrong)


def _left_out(key: str, text: str) -> list[FieldProblem]:
    """The error of a span of time that cannot be read."""
    try:
        span_ms(text or "0")
    except RuleError as err:
        return [problem("", "annotation", err.problem, key=key)]
    return []


def left_by(at: int, run_ms: int) -> int:
    """Log time (ms) by which a job has left after a charge at ``at``; 0 without a declared run time."""
    return at + run_ms + AROUND_MS if run_ms else 0


# --- demand -----------------------------------------------------------------------------------------------------------


ONE = 1000
"""One unit of a counted resource, in base units."""
NO_FLAVORS: Mapping[str, Sequence[str]] = {}

chain_of = lru_cache(maxsize=65536)(path_chain)


class Charge(Struct):
    """The charge of one workload, and its leaf."""

    namespace: str
    queue: str
    request: Vector
    pods: int = 0
    preemptible: bool = True
    named: str = ""
    """The quota named by the label; empty when the namespace decides."""
    over: Vector = field(default_factory=dict)
    """The part of ``request`` that runs beyond the grant."""
    until: int = 0
    """Log time (ms) by which the workload has left if its declaration is true; 0 without a declared run time."""
    priority: int = 0
    """The priority in its last queueing; 0 for adopted work, never queued."""
    begun: Cause = Cause(0, 0)
    """The event that charged the workload."""
    flavors: Flavors = field(default_factory=dict)
    """The flavors behind its amounts by flavor."""

    @property
    def rank(self) -> tuple[int, bool, Cause]:
        """The order in which the guarantee of a queue counts for its jobs: higher priority first, work beyond its grant
        last of its priority, then what began first.
        """
        return -self.priority, bool(self.over), self.begun

    @property
    def demand(self) -> Demand:
        return Demand(self.request, self.pods, self.preemptible)

    @property
    def granted(self) -> Vector:
        """The granted amounts of the resources in ``over``."""
        return {name: self.request[name] - amount for name, amount in self.over.items()}


class QueuedRequest(Struct, frozen=True):
    """The request of a waiting workload under an attempt."""

    attempt: int
    queue: str
    request: Vector
    priority: int = 0


class Scratch(Struct):
    """Charges decided or proposed, and not in the ledger yet: path -> vector on top of the ledger."""

    extra: dict[str, Vector] = field(default_factory=dict)
    firm: dict[str, Vector] = field(default_factory=dict)
    """The part of ``extra`` that is not preemptible."""

    def add(self, queue: str, demand: Demand, times: int = 1) -> None:
        """Add a demand to every node on the path; a negative ``times`` takes the demand off."""
        amounts = counted(demand)
        spread(self.extra, queue, amounts, times)
        if not demand.preemptible:
            spread(self.firm, queue, amounts, times)

    def copied(self) -> Scratch:
        return Scratch(*({path: dict(vector) for path, vector in of.items()} for of in (self.extra, self.firm)))


def counted(of: Demand | Charge) -> Vector:
    """The request and the counted resources: jobs and machines."""
    amounts = dict(of.request)
    jobs = of.jobs if isinstance(of, Demand) else 1
    if jobs:
        amounts[JOBS] = ONE * jobs
    if of.pods:
        amounts[MACHINES] = of.pods * ONE
    return amounts


def add_at(totals: dict[str, Vector], key: str, amounts: Mapping[str, int], times: int) -> None:
    """Add to the amounts under a key; without amounts there is no key."""
    vector = totals.setdefault(key, {})
    add_into(vector, amounts, times)
    if not vector:
        del totals[key]


def spread(totals: dict[str, Vector], queue: str, amounts: Vector, times: int) -> None:
    for path in chain_of(queue):
        vector = totals.get(path)
        if vector is None:
            vector = totals[path] = {}
        for name, amount in amounts.items():  # As add_into does, inline: the most frequent call.
            value = vector.get(name, 0) + amount * times
            if value:
                vector[name] = value
            else:
                vector.pop(name, None)
        if not vector:
            del totals[path]


def lent_beside(nodes: Mapping[str, QuotaNode], used: Mapping[str, Vector], at: str, demand: Demand) -> bool:
    """Whether a node beside the path of node ``at`` uses more than its guarantee of the requested resources.

    ``nodes``, ``used``: path -> node, and path -> usage.
    """
    chain = chain_of(at)
    for path in chain[1:]:
        for child in nodes[path].children if path in nodes else ():
            uses = used.get(child)
            if uses and child not in chain:
                least = nodes[child].guaranteed
                for name in demand.request:
                    if uses.get(name, 0) > least.get(name, 0):
                        return True
    return False


def laid_out(nodes: Mapping[str, QuotaNode], queue: str) -> str:
    """The placement strategies for the pods of a job, from its leaf and the nodes above; empty without any."""
    placements = [
        nodes[path].placement for path in reversed(chain_of(queue)) if path in nodes and nodes[path].placement
    ]
    return strategies_text(inherited(placements)) if placements else ""


def need_of(tree: QuotaTree | None, workload: Workload, flavors: Mapping[str, Sequence[str]] = NO_FLAVORS) -> Vector:
    """The request of a workload as its tree counts it, with the amounts by flavor beside the totals."""
    request = _in_parts(tree, workload, workload.need.get(tree.profile if tree is not None else "ack", {}))
    return _by_flavor(tree, workload, request, flavors)


def asks_of(tree: QuotaTree | None, workload: Workload, flavors: Mapping[str, Sequence[str]] = NO_FLAVORS) -> Vector:
    """The request of all pods of the spec, whatever the tree leaves out."""
    return _by_flavor(tree, workload, _in_parts(tree, workload, workload.asks), flavors)


def _in_parts(tree: QuotaTree | None, workload: Workload, request: Vector) -> Vector:
    if tree is None or not tree.gpu_memory or GPU not in request:
        return request
    return tree.gpus.in_parts(request, workload.gpu_memory)


def demand_of(
    tree: QuotaTree | None,
    workload: Workload,
    priority: int | None = None,
    *,
    queue: str = "",
    flavors: Flavors | None = None,
) -> Demand:
    """The demand of a workload under the request profile of its tree.

    ``priority``: where known, and where the rules of the tree use priorities to tell preemptible work. ``queue``: its
    leaf, where known. ``flavors``: the flavors of the demand, where the workload may use these; else its first.
    """
    if tree is not None and tree.flavors:
        options = demands_of(tree, queue, workload)
        return next((demand for demand in options if demand.flavors == flavors), options[0])
    return _demand(tree, workload, {}, priority)


def _demand(tree: QuotaTree | None, workload: Workload, flavors: Flavors, priority: int | None = None) -> Demand:
    need = need_of(tree, workload, flavors)
    preemptible = is_preemptible(workload.labels)
    if tree is not None and tree.by_shares:
        preemptible = kai_preemptible(workload, priority)
    declared = run_time_ms(workload.labels)
    pods = sum([pod_set.count for pod_set in workload.pod_sets])
    return Demand(need, pods, preemptible, run_ms=declared, basis=workload.basis, flavors=flavors)


# --- flavors ----------------------------------------------------------------------------------------------------------


MOST_ALTERNATIVES = 64
"""The alternatives of a workload that are tried; pod sets with many flavors each have more."""
_ONE_ALTERNATIVE: tuple[Flavors, ...] = ({},)


class Misfit(NamedTuple):
    """What keeps pods from the nodes of a flavor: a label or a key that they ask for, or a taint."""

    kind: Literal["label", "affinity", "taint"]
    key: str


def alternatives(tree: QuotaTree | None, queue: str, workload: Workload) -> tuple[Flavors, ...]:
    """The flavors that the pod sets of a workload may use, the best alternative first; one without any flavor where
    the tree has no flavors.

    The last pod set takes its next flavor first. A pod set that only flavors outside the lists suit runs there if at
    all, and is charged so: no list of a job changes what its pods select, and the max of the queue decides. A pod set
    that no flavor suits runs on nodes of no flavor, and counts in the total alone.
    """
    if tree is None or not tree.flavors:
        return _ONE_ALTERNATIVE
    order = flavor_order(tree, queue, workload)
    wishes = order, _allowed(tree, queue)
    mine = ((pods.name, _options(tree, wishes, pods.request, pods.rules)) for pods in workload.pod_sets)
    choices = [(name, options) for name, options in mine if options]
    products = islice(product(*(options for _, options in choices)), MOST_ALTERNATIVES)
    names = [name for name, _ in choices]
    return tuple(dict(zip(names, picked, strict=True)) for picked in products)


_MOST_KNOWN = 4096


def demands_of(tree: QuotaTree, queue: str, workload: Workload) -> tuple[Demand, ...]:
    """The demand of a workload under each of its alternatives, in order, in a tree with flavors.

    Kept with the tree for each digest of a workload's input: many events ask again.
    """
    labels = workload.labels
    key = queue, workload.basis, labels.get(RUN_TIME, ""), is_preemptible(labels)
    known: tuple[Demand, ...] | None = tree.demands.get(key) if workload.basis else None
    if known is None:
        known = tuple(_demand(tree, workload, flavors) for flavors in alternatives(tree, queue, workload))
        if len(tree.demands) >= _MOST_KNOWN:
            tree.demands.clear()
        if workload.basis:
            tree.demands[key] = known
    return known


def flavor_order(tree: QuotaTree, queue: str, workload: Workload) -> tuple[str, ...]:
    """The flavors that a workload may use by its own list and the list of its queue, in order.

    Unknown names count as absent; the list of the queue decides where the workload names none of its flavors.
    """
    allowed = _allowed(tree, queue)
    listed = (name.strip() for name in workload.labels.get(FLAVORS, "").split(","))
    return tuple(dict.fromkeys(name for name in listed if name in allowed)) or allowed


def flavors_left_out(tree: QuotaTree | None, queue: str, workload: Workload) -> tuple[FieldProblem, ...]:
    """The names in the list of a workload that are no flavors of its queue: these count as absent."""
    if tree is None or not tree.flavors:
        return ()
    allowed = _allowed(tree, queue)
    listed = dict.fromkeys(name for part in workload.labels.get(FLAVORS, "").split(",") if (name := part.strip()))
    return tuple(
        problem(
            "", "annotation", problem("", "not_a_flavor_here", value=name, queue=queue, choices=allowed), key=FLAVORS
        )
        for name in listed
        if name not in allowed
    )


def _allowed(tree: QuotaTree, queue: str) -> tuple[str, ...]:
    """The flavors of a queue, in order."""
    node = next((node for node in tree.nodes if node.path == queue), None)
    return node.flavors if node is not None and node.flavors else tuple(one.name for one in tree.flavors)


def _options(
    tree: QuotaTree, wishes: Sequence[Sequence[str]], request: Mapping[str, int], rules: PodRules
) -> tuple[tuple[str, ...], ...]:
    """The flavors that pods may use, one of each group of resources that the pods ask for; the best first. Of each
    group, those of the first of the ``wishes`` that names any.
    """
    groups = []
    for resources, group in tree.flavor_groups.items():
        if any(request.get(name) for name in resources):
            able = [name for name in group if suits(group[name], group.values(), rules)]
            listed = ([name for name in wish if name in able] for wish in wishes)
            groups += [next(filter(None, listed), able)] if able else []
    return tuple(product(*groups)) if groups else ()


def suits(flavor: Flavor, beside: Iterable[Flavor], rules: PodRules) -> bool:
    """Whether pods could run on the nodes of a flavor."""
    return misfit(flavor, beside, rules) is None


def misfit(flavor: Flavor, beside: Iterable[Flavor], rules: PodRules) -> Misfit | None:
    """Why pods could not run on the nodes of a flavor: by the labels that any of the alternatives ``beside`` names, or
    by its taints; None where they could.
    """
    known = {key for other in beside for key in other.labels}
    for key, value in rules.node_labels.items():
        if key in known and flavor.labels.get(key) != value:
            return Misfit("label", f"{key}={value}")
    terms = [[wanted for wanted in term.labels if wanted.key in known] for term in rules.nodes or ()]
    if rules.nodes is not None and not any(all(holds(wanted, flavor.labels) for wanted in term) for term in terms):
        return Misfit("affinity", next((wanted.key for term in terms for wanted in term), ""))
    taint = untolerated(flavor.taints, (*rules.tolerations, *flavor.tolerations))
    return Misfit("taint", taint.key) if taint is not None else None


def misfits(tree: QuotaTree, workload: Workload) -> dict[str, Misfit]:
    """{flavor: why no pod set of a workload that asks for its resources could run there}, in the order of the tree."""
    by_flavor: dict[str, Misfit] = {}
    groups = tree.flavor_groups
    for flavor in tree.flavors:
        group = groups[flavor.resources].values()
        asking = [pods for pods in workload.pod_sets if any(pods.request.get(name) for name in flavor.resources)]
        whys = [misfit(flavor, group, pods.rules) for pods in asking]
        if whys and (first := whys[0]) is not None and None not in whys:
            by_flavor[flavor.name] = first
    return by_flavor


def nodes_of(tree: QuotaTree | None, flavors: Mapping[str, Sequence[str]]) -> dict[str, FlavorNodes]:
    """{pod set: what its pods need for the nodes of its flavors}; without pod sets that need nothing."""
    by_set: dict[str, FlavorNodes] = {}
    for name in flavors:
        mine = [one for one in (tree.flavors if tree is not None else ()) if one.name in flavors[name]]
        labels = {key: value for one in mine for key, value in one.labels.items()}
        tolerations = tuple(dict.fromkeys(given for one in mine for given in one.tolerations))
        if labels or tolerations:
            by_set[name] = FlavorNodes(labels, tolerations)
    return by_set


def _by_flavor(
    tree: QuotaTree | None, workload: Workload, request: Vector, flavors: Mapping[str, Sequence[str]]
) -> Vector:
    """A request with the amounts by flavor. What a profile counts beside the pod sets belongs to the first flavor."""
    if tree is None or not tree.flavors or not flavors:
        return request
    parts: Vector = {}
    for resources, group in tree.flavor_groups.items():
        for name in resources:
            whole, amounts = request.get(name, 0), Vector()
            for pods in workload.pod_sets:
                asked = pods.request.get(name, 0) * pods.count
                mine = next((one for one in flavors.get(pods.name, ()) if one in group), "")
                if asked:
                    amounts[mine] = amounts.get(mine, 0) + asked
            if amounts and "" not in amounts:
                first = next(iter(amounts))
                amounts[first] += whole - sum(amounts.values())
            parts |= {of_flavor(name, one): part for one, part in amounts.items() if one and part > 0}
    return dict(sorted((request | parts).items())) if parts else request


def all_of(tree: QuotaTree | None, amounts: Vector, names: Iterable[str]) -> Vector:
    """Amounts that belong as a whole to each of these flavors, with the amounts by flavor."""
    used = {*names}
    mine = [flavor for flavor in tree.flavors if flavor.name in used] if tree is not None and used else []
    parts = {of_flavor(name, one.name): amounts[name] for one in mine for name in one.resources if amounts.get(name)}
    return dict(sorted((amounts | parts).items())) if parts else amounts


def totals_of(amounts: Mapping[str, int]) -> Vector:
    """The amounts without the parts by flavor."""
    return {name: amount for name, amount in amounts.items() if "@" not in name}


def located(tree: QuotaTree | None, amounts: Vector, granted: Mapping[str, int], bound: Mapping[str, int]) -> Vector:
    """Amounts of a job with their parts by flavor: of the nodes that its pods run on, the rest as granted.

    ``bound``: the amounts of the pods with a node, by flavor too. Where the parts of the grant are more than the rest,
    any of these parts may be the one that is left, and each counts. All of one granted flavor stays all of this flavor.
    """
    if tree is None or not tree.flavors:
        return totals_of(amounts)
    parts, keys = Vector(), tree.flavored
    for total in dict.fromkeys(keys.values()):
        whole = left = amounts.get(total, 0)
        mine = {key: granted.get(key, 0) for key in keys if keys[key] == total}
        mine = {key: whole if part and part == granted.get(total) else part for key, part in mine.items()}
        for most in (mine, dict.fromkeys(mine, whole)):  # More pods may run than granted: first those as granted.
            for key in mine:
                part = min(max(min(bound.get(key, 0), most[key]) - parts.get(key, 0), 0), left)
                parts[key], left = parts.get(key, 0) + part, left - part
        rest = max(whole - bound.get(total, 0), 0)
        for key, part in mine.items():
            parts[key] += min(max(part - bound.get(key, 0), 0), rest)
    return dict(sorted((totals_of(amounts) | {key: part for key, part in parts.items() if part}).items()))
