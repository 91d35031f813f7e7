"""``python -m muster_tools.catalogue``: writes ``docs/events.md``, every event of the log, from the code.

The emitter of an event comes from the source (the modules that make one), the folder from the arms of the stages, the
public form from the publication. ``--check`` writes nothing and fails when the page is not up to date.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

import muster.bus
import muster.core
import muster.runtime
from muster.core.actuation.intents import Actuator
from muster.core.cell.deciders import DECIDERS
from muster.core.reading.watched import WATCHED
from muster.core.reading.watcher import Watcher
from muster.events import public
from muster.events.base import Decision, Event
from muster.events.effects import Effect
from muster.events.facts import Fact
from muster.events.raydemand import RayDemandObserved
from muster.events.registry import EVENT_TYPES
from muster.told.readmodel.model import ReadModel
from muster.told.views import publication
from muster_tools.attributes import summary

PAGE = Path("docs/events.md")

EMITTERS: Mapping[str, str] = {
    "muster.bus.cell": "the process that creates the log",
    "muster.core.abridging": "watcher",
    "muster.core.actuation": "actuator",
    "muster.core.objects": "watcher",
    "muster.core.reading": "watcher",
    "muster.core.workloads": "watcher",
    "muster.runtime.runners.acting": "actuator",
    "muster.runtime.runners.activating": "quota_accountant's runner",
    "muster.core.cell.seats": "every stage's runner",
    "muster.runtime.runners.leader": "every stage's runner",
    "muster.runtime.process": "quota_accountant's runner",
    "muster.runtime.runners.watching": "watcher",
    **{stage.__module__.rpartition(".")[0]: name for name, stage in DECIDERS.items()},
}
"""{part of the code: stage}; a module in the room of a deciding stage belongs to the stage"""

IN_MEMORY = ("muster.core.cell.seats", "genesis")
"""A cell in memory founds its own log without a stage."""

SHARED = (
    "genesis",
    "kinds_configured",
    "log_nearly_full",
    "ruleset_activated",
    "sync_started",
    "synced",
    "workload_abridged",
)
"""Folded the same way by every stage (core/stage.py, core/abridging.py)."""

OBSERVED = "changes nothing unless its resourceVersion is newer than the last one folded of that uid"
GONE = "changes nothing: the end of a uid is remembered for 15 minutes of log time"
TOLD = "changes nothing anywhere: it is news; what counts is the phase in `workload_observed`"
OF_ATTEMPT = "changes nothing: it names an attempt, and the state has moved on from it"

REDELIVERIES: Mapping[str, str] = {
    "alarm_cleared": "changes nothing: no alarm is known",
    "alarm_raised": "changes nothing while it is raised; one that is over is cleared once more",
    "candidates_proposed": "is denied as `stale` where a candidate is no longer waiting; nothing is reserved twice",
    "charge_changed": "changes nothing: it is charged so already",
    "claim_ended": "changes nothing: the claim it ends is gone",
    "claim_opened": "opens the same claim again; it ends by its deadline, or at once when the claimant no longer waits",
    "effect_applied": "changes nothing: the intent is no longer outstanding",
    "effect_failed": "changes nothing: the intent is no longer outstanding",
    "eviction_ordered": "finds victims of an older attempt: no job is suspended; a claim that it opens ends at once",
    "gang_admitted": "is resumed once: the patch tests the previous intent, and finds its own",
    "gang_awaiting_nodes": OF_ATTEMPT,
    "gang_deferred": OF_ATTEMPT,
    "gang_held_back": "changes nothing: it says the same",
    "gate_set": "writes nothing: the annotation on the cluster says that it is done",
    "genesis": "cannot be: it is sequence 1 of its stream",
    "growth_denied": "changes nothing: the same refusal is known",
    "growth_granted": "changes nothing: that much is granted and charged already",
    "growth_requested": "is void: it builds on a grant that has changed; otherwise the same is asked for",
    "growth_withdrawn": "changes nothing: it is withdrawn already",
    "kinds_configured": "changes nothing: those kinds are on already",
    "leader_started": "makes a new epoch; the process it names goes on, others are refused",
    "log_nearly_full": "changes nothing: the log is closing already",
    "nodes_claim_ended": "changes nothing: the claim it ends is gone",
    "nodes_claimed": "opens the same claim again; it ends by its deadline, or at once when the gang no longer waits",
    "nodes_request_withdrawn": "changes nothing: the request it takes back is gone; removing it twice removes it once",
    "nodes_requested": "makes nothing new: its name comes from its cause, and what has that name is there",
    "object_unreadable": OBSERVED,
    "placement_chosen": "changes nothing: the same placement is in force",
    "places_found": "changes nothing: that attempt does not wait for room any more",
    "places_released": "changes nothing: what it names is held no more",
    "gpu_reservation_ended": "changes nothing: that pod is being deleted, or gone",
    "plan_stale": "changes nothing: the proposal it answers is gone",
    "pods_awaited": "the Events are read once more, and the next look is later",
    "pods_denied": "changes nothing: the same refusal is known",
    "pods_proposed": "is answered once more: those that are charged may be placed already",
    "pods_reserved": "changes nothing: they may be placed already",
    "pods_placed": "changes nothing for pods that are bound or have that place; each binding tests the uid of its pod",
    "pods_released": "changes nothing: those pods have no place that could be taken back",
    "preemption_proposed": "is judged again: an order if it still holds, `plan_stale` otherwise",
    "quota_denied": OF_ATTEMPT,
    "quota_moved": "changes nothing: it is charged there already",
    "quota_released": "changes nothing: the charge it ends is gone",
    "quota_reserved": OF_ATTEMPT,
    "quota_tree_accepted": "changes nothing: the same tree is in force",
    "quota_tree_rejected": "changes nothing: the same refusal is known",
    "quota_tree_removed": "changes nothing: no tree is in force",
    "ray_demand_observed": "changes nothing unless it was read later than the last one of that attempt",
    "reclaim_deferred": "changes nothing: the claimant rests already",
    "ruleset_activated": "changes nothing: the number in force only grows",
    "shares_changed": "changes nothing: the same shares and the same usage are known",
    "surplus_ordered": "changes nothing once the workers are gone: what still exceeds is taken as it is then",
    "suspension_ordered": OF_ATTEMPT,
    "suspension_recorded": "changes nothing: it is recorded",
    "sync_started": "closes admissions until each kind it names is `synced` again",
    "synced": "changes nothing: the kind is known already",
    "time_reached": "changes nothing: log time is a running maximum",
    "victim_stays": "changes nothing: no claim waits for that victim",
    "workers_chosen": "changes nothing: it releases these workers already, or has released them",
    "workers_kept": "changes nothing: no claimant waits for its workers",
    "workers_removed": "changes nothing but when it is tried again: a pod that is on its way is left alone",
    "workload_abridged": OBSERVED,
    "workload_adopted": "changes nothing: it is charged already",
    "workload_dequeued": OF_ATTEMPT,
    "workload_finished": TOLD,
    "workload_queued": OF_ATTEMPT,
    "workload_refused": "changes nothing: the same refusal is known",
    "workload_started": TOLD,
}
"""{event: effect of a second delivery}; observations and ends have common rows."""


def redelivery(tag: str) -> str:
    """The effect of a second delivery of an event. Raises LookupError when the table has no row."""
    if tag in REDELIVERIES:
        return REDELIVERIES[tag]
    for end, text in (("_observed", OBSERVED), ("_gone", GONE)):
        if tag.endswith(end):
            return text
    raise LookupError(f"say what a redelivery of {tag} does, in muster_tools/catalogue.py")


@cache
def emitters() -> dict[str, list[str]]:
    """{event: services that emit the event}"""
    services: dict[str, dict[str, None]] = {tag: {} for tag in EVENT_TYPES}
    for package in (muster.bus, muster.core, muster.runtime):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            owner = next((EMITTERS[part] for part in EMITTERS if f"{info.name}.".startswith(f"{part}.")), None)
            if owner is not None:
                for tag in _made_in(importlib.import_module(info.name)):
                    if (info.name, tag) != IN_MEMORY:
                        services[tag][owner] = None
    for row in WATCHED.values():
        for kind in Watcher(row.shard).arms():
            services[_tag(kind)]["watcher"] = None
    return {tag: list(owners) for tag, owners in services.items()}


def _made_in(module: ModuleType) -> Iterator[str]:
    """Events that a module makes."""
    for node in ast.walk(_source(module)):
        if isinstance(node, ast.Call):
            kind = _value_of(module, node.func)
            if isinstance(kind, type) and kind in EVENT_TYPES.values():
                yield _tag(kind)


def _source(module: ModuleType) -> ast.Module:
    assert module.__file__ is not None
    return ast.parse(Path(module.__file__).read_text())


def _value_of(module: ModuleType, node: ast.expr) -> object:
    """The value of a name or dotted name in a module."""
    if isinstance(node, ast.Name):
        return getattr(module, node.id, None)
    if isinstance(node, ast.Attribute):
        return getattr(_value_of(module, node.value), node.attr, None)
    return None


def folders() -> dict[str, list[str]]:
    """{event: services that fold the event}"""
    readers: dict[str, list[str]] = {tag: [] for tag in EVENT_TYPES}
    arms = {kind for shard in WATCHED for kind in Watcher(shard).arms()}
    stages: list[tuple[str, set[type[Event]]]] = [("watcher", arms)]
    stages += [(name, set(make().arms())) for name, make in DECIDERS.items()]
    stages += [("actuator", set(Actuator().arms())), ("presenter", set(ReadModel().arms()))]
    for name, kinds in stages:
        for kind in kinds:
            readers[_tag(kind)].append(name)
    return {tag: ["every stage"] if tag in SHARED else names for tag, names in readers.items()}


def published() -> dict[str, list[str]]:
    """{event: public events made of the event}"""
    made_from: dict[str, list[str]] = {}
    for case in ast.walk(_source(publication)):
        if not isinstance(case, ast.match_case):
            continue
        patterns = case.pattern.patterns if isinstance(case.pattern, ast.MatchOr) else [case.pattern]
        calls = [call for call in ast.walk(case) if isinstance(call, ast.Call)]
        named = [_value_of(publication, node) for call in calls for node in (call.func, *call.args[:1])]
        made = [value for value in named if isinstance(value, type) and issubclass(value, public.PublicEvent)]
        for pattern in patterns:
            kind = _value_of(publication, pattern.cls) if isinstance(pattern, ast.MatchClass) else None
            if isinstance(kind, type) and made:
                made_from.setdefault(_tag(kind), []).extend(str(kind_made.__struct_config__.tag) for kind_made in made)
    return made_from


def page() -> str:
    """The page."""
    emitted, folded, told = emitters(), folders(), published()
    groups: dict[str, list[str]] = {"Facts": [], "Decisions": [], "Effects": [], "The log itself": []}
    for tag, kind in EVENT_TYPES.items():
        groups[_group(kind)].append(tag)
    parts = [HEAD]
    for title, tags in groups.items():
        parts += [f"## {title}", "", INTRODUCTIONS[title], ""]
        parts += ["| Event | What it says | Emitted by | Folded by | Public as |", "| --- | --- | --- | --- | --- |"]
        for tag in tags:
            public_name = ", ".join(f"`{name}`" for name in told.get(tag, ()))
            says = summary(EVENT_TYPES[tag]).replace("|", "\\|")
            parts.append(
                f"| `{tag}` | {says} | {', '.join(emitted[tag]) or 'none yet'} "
                f"| {', '.join(folded[tag]) or 'none'} | {public_name} |"
            )
        parts += ["", "Delivered a second time", ""]
        texts_by_tag: dict[str, list[str]] = {}
        for tag in tags:
            texts_by_tag.setdefault(redelivery(tag), []).append(f"`{tag}`")
        parts += [f"- {', '.join(names)}: {text}." for text, names in texts_by_tag.items()]
        parts.append("")
    return "\n".join(parts)


HEAD = """<!-- Written by `make schemas` from the code: change those, or muster_tools/catalogue.py. -->

# Events of the log

Every event there is, its emitter, the services that fold it, and its effect when it comes twice.

Inside the log nothing comes twice: a commit is stored once (its sequence is fenced, and a lost acknowledgement differs
from a race by the stored message), and every reader sees every sequence once, in order. What can repeat is the world: a
relist reports what is known, a restarted actuator carries out an intent again. So every fold is written for a second
delivery all the same.

The public events that outsiders receive have [a contract of their own](../proto-schemas/).
"""

INTRODUCTIONS = {
    "Facts": "What the watcher saw on the cluster: the full state of an object, never a difference.",
    "Decisions": "What a stage decided. Each names the event it answers and the (uid, attempt) it is for.",
    "Effects": "What became of a decision on the API server.",
    "The log itself": "Its birth, its leaders, its time, its rules.",
}


def _group(kind: type[Event]) -> str:
    if issubclass(kind, Decision):
        return "Decisions"
    if kind in (*Fact.__args__, RayDemandObserved):
        return "Facts"
    return "Effects" if kind in Effect.__args__ else "The log itself"


def _tag(kind: type[Event]) -> str:
    return str(kind.__struct_config__.tag)


def main(arguments: list[str]) -> int:
    text = page()
    if PAGE.exists() and PAGE.read_text() == text:
        return 0
    if "--check" in arguments:
        print(f"{PAGE} is not up to date; run `make schemas`", file=sys.stderr)
        return 1
    PAGE.write_text(text)
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
