"""The problems in the log: refused trees, unreadable objects, stages without answers, jobs that do not start.

A table of checks over the read model: each check yields findings, and reads nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from muster.model.keys import Ref
from muster.model.resources import format_part
from muster.model.text import counted, span
from muster.told.codes.codetable import CODES, POD_CODES, JobCode
from muster.told.codes.values import ResumeRefused, Start
from muster.told.presentation.desired import pauses_over, trouble_reason
from muster.told.readmodel.readstate import ReadState, Trouble
from muster.told.status.jobstatus import JobStatus
from muster.told.status.statuses import job_status
from muster.told.wording import jobs
from muster_cli.findings import Finding

SHOWN = 5
SILENT_MS = 30_000
"""A stage that leaves work undone for so long does not answer."""
STARTING_MS = 300_000
"""An admitted job of which nothing exists for so long has no controller."""

ANSWERS: dict[JobCode, str] = {
    "Seen": "queue-sorter",
    "Queued": "queue-sorter",
    "BeingTried": "quota-accountant",
    "Reserved": "gang-admitter",
    "Admitted": "actuator",
}
"""Which stage has to say something next about a job of this code."""


class Look(Struct, frozen=True):
    """What is looked at. ``now``: ms since the epoch; ``acting``: admissions are carried out."""

    state: ReadState
    statuses: list[tuple[Ref, JobStatus, int]]
    """(job, status, begin of the phase)"""
    now: int
    acting: bool


Check = Callable[[Look], Iterator[Finding]]


def log_findings(state: ReadState, now: int, *, acting: bool) -> list[Finding]:
    """Everything that is wrong by the log."""
    statuses = [
        (record.ref, job_status(state, uid, acting=acting), record.since) for uid, record in state.records.items()
    ]
    look = Look(state, statuses, now, acting)
    return [finding for check in CHECKS for finding in check(look)]


def listed(names: list[str]) -> str:
    """The first few, and how many more."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _edit(ref: Ref) -> str:
    namespace = f" -n {ref.namespace}" if ref.namespace else ""
    return f"kubectl{namespace} edit {ref.kind.lower()} {ref.name}"


def _unlisted(look: Look) -> Iterator[Finding]:
    missing = sorted(look.state.unsynced)
    if missing:
        detail = f"the cluster is not fully listed, and nothing is admitted until it is: {', '.join(missing)} missing"
        yield Finding("bad", "watch", detail, "kubectl -n muster-system logs deploy/muster-watcher")


def _refused(look: Look) -> Iterator[Finding]:
    """Objects that are refused as input."""
    titles = {"tree_rejected": "quota tree", "pools_refused": "node pools", "unreadable": "unreadable"}
    for code, title in titles.items():
        troubles = [trouble for trouble in look.state.troubles.values() if trouble.code == code]
        for trouble in troubles[:SHOWN]:
            name = trouble.ref.key if code == "tree_rejected" else str(trouble.ref)
            yield Finding("bad", f"{title} {name}", trouble_reason(trouble).text, _edit(trouble.ref))
        if len(troubles) > SHOWN:
            yield Finding("bad", title, f"{len(troubles) - SHOWN} more objects", "kubectl get events -A; each is named")


def _turned_away(look: Look) -> Iterator[Finding]:
    """Jobs that ask to be queued and are not."""
    by_code: dict[str, list[Trouble]] = {}
    for trouble in look.state.troubles.values():
        if trouble.refusal is not None and trouble.code != "held":
            by_code.setdefault(trouble.code, []).append(trouble)
    for code, troubles in by_code.items():
        names = listed([trouble.ref.key for trouble in troubles])
        detail = f"{counted(len(troubles), 'job')} not queued ({names}): {trouble_reason(troubles[0]).text}"
        if code == "set_aside":
            yield Finding("bad", "set aside", detail, f"muster why {troubles[0].ref.key}")
        else:
            yield Finding("note", "refused jobs", detail, "muster ls --state refused")


def _no_tree(look: Look) -> Iterator[Finding]:
    if look.state.synced and not look.state.queues.ledger.trees:
        detail = "no valid quota tree is in force: nothing can be admitted"
        yield Finding("bad", "quota", detail, "kubectl apply -f TREE.yaml; `muster quota lint TREE.yaml` checks it")


def _silent(look: Look) -> Iterator[Finding]:
    """Stages that owe an answer for too long."""
    late: dict[str, list[str]] = {}
    idle = look.now - look.state.now > SILENT_MS
    for ref, status, since in look.statuses:
        stage = ANSWERS.get(status.code)
        if stage is None or not look.state.synced or (stage == "actuator" and not look.acting):
            continue
        if idle or (status.code in ("Seen", "Reserved", "Admitted") and look.now - since > SILENT_MS):
            late.setdefault(stage, []).append(ref.key)
    for stage, names in late.items():
        detail = f"{stage} has not answered for more than {span(SILENT_MS)}: {listed(names)}"
        yield Finding("bad", "lag", detail, f"kubectl -n muster-system logs deploy/muster-{stage}")


def _no_pods(look: Look) -> Iterator[Finding]:
    by_stage: dict[str, list[str]] = {}
    for ref, status, _ in look.statuses:
        if not isinstance(status.values, Start) or status.detail or not status.since:
            continue
        if not status.values.remains.pods and look.now - status.since > STARTING_MS:
            by_stage.setdefault(ref.kind, []).append(ref.key)
    for kind, names in by_stage.items():
        detail = f"{listed(names)}: admitted more than {span(STARTING_MS)} ago, and nothing of it exists"
        yield Finding("bad", "starting", detail, f"kubectl get deployments -A: does the operator of {kind} run?")


def _held_up(look: Look) -> Iterator[Finding]:
    by_code: dict[str, list[JobStatus]] = {}
    for _, status, _ in look.statuses:
        if status.pods is not None and status.phase not in ("finished", "gone"):
            by_code.setdefault(status.pods.code, []).append(status)
    for code in POD_CODES:
        if code in by_code and code != "InitWaiting":
            names = [status.job for status in by_code[code]]
            detail = f"{code} at {counted(len(names), 'job')} ({listed(names)})"
            yield Finding("note", "pods", detail, f"muster why {names[0]}")


def _not_resumed(look: Look) -> Iterator[Finding]:
    statuses = [(ref, status) for ref, status, _ in look.statuses if isinstance(status.values, ResumeRefused)]
    if statuses:
        ref, status = statuses[0]
        refused = (
            f"the API server refuses to resume {listed([ref.key for ref, _ in statuses])}: {jobs.reason(status).text}"
        )
        yield Finding("bad", "writes", refused, f"muster why {ref.key}")


def _alarms(look: Look) -> Iterator[Finding]:
    for ref, status, _ in look.statuses:
        scaling = status.charge.scaling if status.charge is not None else None
        if scaling is not None and scaling.alarm is not None:
            yield Finding("note", "ray", f"{ref.key}: {jobs.text(status, look.now)}", f"muster why {ref.key}")


def _overuse(look: Look) -> Iterator[Finding]:
    ledger = look.state.queues.ledger
    for path, node in ledger.nodes.items():
        used = ledger.used.get(path, {})
        over = [name for name, limit in sorted(node.limit.items()) if used.get(name, 0) > limit]
        if over:
            words = ", ".join(f"{name} {format_part(used[name], node.limit[name], name)}" for name in over)
            fix = f"muster ls --queue {path} --state running names the jobs; suspend one, or raise the max"
            yield Finding("note", "overuse", f"{path} uses more than its max: {words}", fix)


def _paused(look: Look) -> Iterator[Finding]:
    paused = {queue for queue in look.state.queues.paused if look.state.queues.paused[queue]}
    for text in dict.fromkeys(text for queue in ("", *sorted(paused)) for text in pauses_over(look.state, queue)):
        yield Finding("note", "paused", text, "muster resume admissions")


def _unusable_nodes(look: Look) -> Iterator[Finding]:
    nodes = list(look.state.nodes.nodes.values())
    if nodes and not any(node.ready and node.schedulable for node in nodes):
        detail = f"none of {counted(len(nodes), 'node')} is ready and schedulable: nothing can start"
        yield Finding("bad", "nodes", detail, "kubectl get nodes; kubectl uncordon NODE")


def _defects(look: Look) -> Iterator[Finding]:
    for illegal in look.state.illegal[-1:]:
        detail = (
            f"{illegal.ref} went from {illegal.before} to {illegal.after} at sequence {illegal.seq}, which may not be"
        )
        yield Finding("bad", "defect", detail, "muster export --out LOG, and report it")


CHECKS: tuple[Check, ...] = (
    _unlisted,
    _refused,
    _no_tree,
    _silent,
    _no_pods,
    _not_resumed,
    _unusable_nodes,
    _defects,
    _overuse,
    _paused,
    _alarms,
    _held_up,
    _turned_away,
)
"""The most urgent first."""

assert all(code in CODES for code in ANSWERS)
