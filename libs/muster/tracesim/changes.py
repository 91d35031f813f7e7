"""Changes of a past before a new run: each function returns another past. All raise TraceError."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from muster.core.quota.trees.rules import KNOWN, read_rules
from muster.core.stage import NEWEST, OLDEST
from muster.events.envelope import Stored
from muster.events.facts import QuotaTreeObserved
from muster.events.system import PlacementMode, RulesetActivated
from muster.model.language import listed, say
from muster.model.quota import QuotaTree
from muster.model.resources import Vector
from muster.told.wording import problems
from muster.tracesim.model import Trace, TraceError
from muster.tracesim.past import Past, pooled, queues_of, single

POLICIES = ("Round", "Priority", "Block")
"""What a queue's policy may be."""


def under(past: Past, tree: QuotaTree, namespaces: Mapping[str, str], rules: dict[str, str]) -> Past:
    """The same past under another tree; jobs stay in their queue, else go where ``namespaces`` sends them."""
    old = past.trace.cluster
    priorities = {path: queue.priority for path, queue in old.queues.items()}
    cluster = replace(old, root=queues_of(tree, priorities), rules=rules)
    jobs = []
    for job in past.trace.jobs:
        leaf = job.queue if job.queue in cluster.leaves else namespaces.get(past.keys[job.id].partition("/")[0])
        if leaf is not None:
            jobs.append(replace(job, queue=leaf))
    lost = len(past.trace.jobs) - len(jobs)
    return replace(past, trace=Trace(cluster, tuple(jobs)), left_out=past.left_out + lost)


def prioritised(past: Past, wanted: Mapping[str, int]) -> Past:
    """The same past with other priorities: ``namespace/name`` -> priority. Raises TraceError for a job there is not."""
    known = set(past.keys.values())
    for key in wanted:
        if key not in known:
            raise TraceError(say("there is no job {key} in this log", key=key))
    jobs = tuple(replace(job, priority=wanted.get(past.keys[job.id], job.priority)) for job in past.trace.jobs)
    return replace(past, trace=Trace(past.trace.cluster, jobs))


def changed_rules(before: Mapping[str, str], rules: Mapping[str, str]) -> dict[str, str]:
    """The rules of a tree with others: annotation without prefix -> value, empty for none. Raises TraceError."""
    changed = {name: text for name, text in {**before, **rules}.items() if text}
    _, wrong = read_rules(changed)
    unknown = [name for name in rules if name not in KNOWN]
    if unknown:
        raise TraceError(
            say("there is no rule {unknown}; there are {known}", unknown=unknown[0], known=listed(sorted(KNOWN)))
        )
    if wrong:
        raise TraceError(problems.line(wrong[0]))
    return changed


def known_ruleset(number: int) -> int:
    """The number itself. Raises TraceError for a rule set unknown to this build."""
    if not OLDEST <= number <= NEWEST:
        raise TraceError(
            say(
                "this build decides by rule sets {oldest} to {newest}, and not by {number}",
                oldest=OLDEST,
                newest=NEWEST,
                number=number,
            )
        )
    return number


def otherwise(commits: Iterable[Stored], rules: Mapping[str, str], ruleset: int) -> Iterator[Stored]:
    """A recorded log with other rules in every quota tree, and another rule set in force (0: the log's own).

    For the canonical schedule, which takes only the inputs from outside of a log. Raises TraceError.
    """
    for stored in commits:
        events = tuple(
            replace(event, rules=changed_rules(event.rules, rules)) if isinstance(event, QuotaTreeObserved) else event
            for event in stored.commit.events
        )
        yield replace(stored, commit=replace(stored.commit, events=events)) if rules else stored
        if ruleset and stored.seq == 1:
            commit = replace(stored.commit, stage="quota_accountant", events=(RulesetActivated(number=ruleset),))
            yield replace(stored, commit=commit)


def ruled(past: Past, rules: Mapping[str, str]) -> Past:
    """The same past with other rules of its tree: annotation without prefix -> value, empty for none."""
    cluster = past.trace.cluster
    changed = changed_rules(cluster.rules, rules)
    return replace(past, trace=Trace(replace(cluster, rules=changed), past.trace.jobs))


def governed(past: Past, policies: Mapping[str, str]) -> Past:
    """The same past with other policies of its queues: path of a leaf -> Round, Priority or Block."""
    cluster = past.trace.cluster
    for path, policy in policies.items():
        if path not in cluster.leaves:
            raise TraceError(
                say(
                    "there is no queue {path} where jobs wait; there are {leaves}",
                    path=path,
                    leaves=listed(cluster.leaves),
                )
            )
        if policy not in POLICIES:
            raise TraceError(
                say("there is no policy {policy}; there are {policies}", policy=policy, policies=listed(POLICIES))
            )
    return replace(past, trace=Trace(replace(cluster, policies={**cluster.policies, **policies}), past.trace.jobs))


def equipped(past: Past, without: Iterable[str], more: Iterable[Vector]) -> Past:
    """The same past on other nodes: without those named, and with more."""
    if not past.nodes:
        raise TraceError(say("this log never saw a node, so its capacity was unlimited and cannot be lowered"))
    nodes = dict(past.nodes)
    for name in without:
        if name not in nodes:
            raise TraceError(
                say(
                    "there is no node {name} in this log; there are {nodes}",
                    name=name,
                    nodes=listed(sorted(nodes)[:20]),
                )
            )
        del nodes[name]
    for number, node in enumerate(more, start=1):
        nodes[f"tried-{number}"] = node
    old = past.trace.cluster
    cluster = replace(old, groups=pooled(nodes) if old.placement == "off" else single(nodes))
    return replace(past, nodes=nodes, trace=Trace(cluster, past.trace.jobs))


def decided_by(past: Past, number: int) -> Past:
    """The same past decided by another rule set."""
    return replace(past, trace=Trace(replace(past.trace.cluster, ruleset=known_ruleset(number)), past.trace.jobs))


def placed(past: Past, mode: PlacementMode) -> Past:
    """The same past with gangs placed otherwise on the nodes, or by quota alone (``off``)."""
    if not past.nodes and mode != "off":
        raise TraceError(say("no node was ever seen in this log: gangs cannot be placed on any"))
    groups = pooled(past.nodes) if mode == "off" else single(past.nodes)
    return replace(past, trace=Trace(replace(past.trace.cluster, groups=groups, placement=mode), past.trace.jobs))
