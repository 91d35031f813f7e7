"""The problems in the log: refused trees, unreadable objects, stages without answers, jobs that do not start.

A table of checks over the read model: each check yields findings, and reads nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from muster.model.keys import Ref
from muster.model.language import listed, say
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


def some(names: list[str]) -> str:
    """Some of the names, with the number of the rest."""
    shown, more = listed(names[:SHOWN]), len(names) - SHOWN
    return say("{names} and {number} more", names=shown, number=more) if more > 0 else shown


def _edit(ref: Ref) -> str:
    namespace = f" -n {ref.namespace}" if ref.namespace else ""
    return f"kubectl{namespace} edit {ref.kind.lower()} {ref.name}"


def _unlisted(look: Look) -> Iterator[Finding]:
    missing = sorted(look.state.unsynced)
    if missing:
        detail = say(
            "the cluster is not fully listed, and nothing is admitted until it is: {missing} missing",
            missing=listed(missing),
        )
        yield Finding("bad", say("watch"), detail, "kubectl -n muster-system logs deploy/muster-watcher")


def _refused(look: Look) -> Iterator[Finding]:
    """Objects that are refused as input."""
    titles = {"tree_rejected": say("quota tree"), "pools_refused": say("node pools"), "unreadable": "unreadable"}
    for code, title in titles.items():
        troubles = [trouble for trouble in look.state.troubles.values() if trouble.code == code]
        for trouble in troubles[:SHOWN]:
            name = trouble.ref.key if code == "tree_rejected" else str(trouble.ref)
            yield Finding("bad", f"{title} {name}", trouble_reason(trouble).text, _edit(trouble.ref))
        if len(troubles) > SHOWN:
            yield Finding(
                "bad",
                title,
                say("{troubles} more objects", troubles=len(troubles) - SHOWN),
                say("kubectl get events -A; each is named"),
            )


def _turned_away(look: Look) -> Iterator[Finding]:
    """Jobs that ask to be queued and are not."""
    by_code: dict[str, list[Trouble]] = {}
    for trouble in look.state.troubles.values():
        if trouble.refusal is not None and trouble.code != "held":
            by_code.setdefault(trouble.code, []).append(trouble)
    for code, troubles in by_code.items():
        names = some([trouble.ref.key for trouble in troubles])
        detail = say(
            "{jobs} not queued ({names}): {words}",
            jobs=counted(len(troubles), "job"),
            names=names,
            words=trouble_reason(troubles[0]).text,
        )
        if code == "set_aside":
            yield Finding("bad", say("set aside"), detail, f"muster why {troubles[0].ref.key}")
        else:
            yield Finding("note", say("refused jobs"), detail, "muster ls --state refused")


def _no_tree(look: Look) -> Iterator[Finding]:
    if look.state.synced and not look.state.queues.ledger.trees:
        detail = say("no valid quota tree is in force: nothing can be admitted")
        yield Finding(
            "bad", say("quota"), detail, say("kubectl apply -f TREE.yaml; `muster quota lint TREE.yaml` checks it")
        )


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
        detail = say(
            "{stage} has not answered for more than {silent_ms}: {names}",
            stage=stage,
            silent_ms=span(SILENT_MS),
            names=some(names),
        )
        yield Finding("bad", say("lag"), detail, f"kubectl -n muster-system logs deploy/muster-{stage}")


def _no_pods(look: Look) -> Iterator[Finding]:
    by_stage: dict[str, list[str]] = {}
    for ref, status, _ in look.statuses:
        if not isinstance(status.values, Start) or status.detail or not status.since:
            continue
        if not status.values.remains.pods and look.now - status.since > STARTING_MS:
            by_stage.setdefault(ref.kind, []).append(ref.key)
    for kind, names in by_stage.items():
        detail = say(
            "{names}: admitted more than {starting_ms} ago, and nothing of it exists",
            names=some(names),
            starting_ms=span(STARTING_MS),
        )
        yield Finding(
            "bad",
            say("starting"),
            detail,
            say("kubectl get deployments -A: does the operator of {kind} run?", kind=kind),
        )


def _held_up(look: Look) -> Iterator[Finding]:
    by_code: dict[str, list[JobStatus]] = {}
    for _, status, _ in look.statuses:
        if status.pods is not None and status.phase not in ("finished", "gone"):
            by_code.setdefault(status.pods.code, []).append(status)
    for code in POD_CODES:
        if code in by_code and code != "InitWaiting":
            names = [status.job for status in by_code[code]]
            detail = say("{code} at {jobs} ({names})", code=code, jobs=counted(len(names), "job"), names=some(names))
            yield Finding("note", say("pods"), detail, f"muster why {names[0]}")


def _not_resumed(look: Look) -> Iterator[Finding]:
    statuses = [(ref, status) for ref, status, _ in look.statuses if isinstance(status.values, ResumeRefused)]
    if statuses:
        ref, status = statuses[0]
        refused = say(
            "the API server refuses to resume {statuses}: {words}",
            statuses=some([ref.key for ref, _ in statuses]),
            words=jobs.reason(status).text,
        )
        yield Finding("bad", say("writes"), refused, f"muster why {ref.key}")


def _alarms(look: Look) -> Iterator[Finding]:
    for ref, status, _ in look.statuses:
        scaling = status.charge.scaling if status.charge is not None else None
        if scaling is not None and scaling.alarm is not None:
            yield Finding("note", say("ray"), f"{ref.key}: {jobs.text(status, look.now)}", f"muster why {ref.key}")


def _overuse(look: Look) -> Iterator[Finding]:
    ledger = look.state.queues.ledger
    for path, node in ledger.nodes.items():
        used = ledger.used.get(path, {})
        over = [name for name, limit in sorted(node.limit.items()) if used.get(name, 0) > limit]
        if over:
            words = listed(f"{name} {format_part(used[name], node.limit[name], name)}" for name in over)
            fix = say(
                "muster ls --queue {path} --state running names the jobs; suspend one, or raise the max", path=path
            )
            yield Finding(
                "note", say("overuse"), say("{path} uses more than its max: {words}", path=path, words=words), fix
            )


def _paused(look: Look) -> Iterator[Finding]:
    paused = {queue for queue in look.state.queues.paused if look.state.queues.paused[queue]}
    for text in dict.fromkeys(text for queue in ("", *sorted(paused)) for text in pauses_over(look.state, queue)):
        yield Finding("note", say("paused"), text, "muster resume admissions")


def _unusable_nodes(look: Look) -> Iterator[Finding]:
    nodes = list(look.state.nodes.nodes.values())
    if nodes and not any(node.ready and node.schedulable for node in nodes):
        detail = say("none of {nodes} is ready and schedulable: nothing can start", nodes=counted(len(nodes), "node"))
        yield Finding("bad", say("nodes"), detail, "kubectl get nodes; kubectl uncordon NODE")


def _defects(look: Look) -> Iterator[Finding]:
    for illegal in look.state.illegal[-1:]:
        detail = say(
            "{ref} went from {before} to {after} at sequence {seq}, which may not be",
            ref=illegal.ref,
            before=illegal.before,
            after=illegal.after,
            seq=illegal.seq,
        )
        yield Finding("bad", say("defect"), detail, say("muster export --out LOG, and report it"))


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
