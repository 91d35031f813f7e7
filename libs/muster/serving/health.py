"""Whether a cell works, by its log: what stops the admissions, and which objects need a person. Pure.

`muster doctor` asks the cluster and the bus as well. This answer exists for any moment of the past too.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.model.language import listed, say
from muster.model.quota import COUNTED
from muster.model.resources import Vector, add_into, format_quantity
from muster.model.text import counted
from muster.serving import shapes
from muster.serving.board import board_of
from muster.serving.jobrows import ENDED
from muster.serving.scope import Lens
from muster.told.codes.codetable import CODES
from muster.told.readmodel.jobfolds import phase_of
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import job_status
from muster.told.wording import explain, jobs, pods, problems, raywords

MOST = 20
"""The most findings of one sort in the list."""


def health(state: ReadState, lens: Lens, moment: shapes.MomentView) -> shapes.HealthView:
    """The problems, the worst first, within the rights of the viewer."""
    findings = [*_stopped(state), *_refused(state), *_lacking(state), *_held_up(state, lens), *_paused(state)]
    shown = [shapes.FindingView(finding.level, finding.subject, lens.words(finding.text)) for finding in findings]
    worst = {finding.level for finding in shown}
    summary = (
        say("Nothing is admitted")
        if "stopped" in worst
        else say("Works; some objects need attention")
        if shown
        else say("Works")
    )
    return shapes.HealthView(moment, "stopped" not in worst, summary, shown)


Found = Iterator[shapes.FindingView]


def _stopped(state: ReadState) -> Found:
    """The problems that stop all admissions."""
    if state.unsynced:
        text = say(
            "{unsynced} are not listed yet: nothing is admitted until they are",
            unsynced=listed(sorted(state.unsynced)),
        )
        yield shapes.FindingView("stopped", "", text)
    if state.closing:
        yield shapes.FindingView(
            "stopped", "", say("the log is nearly full: nothing is admitted until a generation begins")
        )
    if not state.queues.ledger.nodes:
        yield shapes.FindingView("stopped", "", say("no quota tree is in force: create one"))


def _refused(state: ReadState) -> Found:
    """Quota trees and node pools that are refused. A refused job shows this in its status."""
    for trouble in state.troubles.values():
        if trouble.code in ("tree_rejected", "pools_refused"):
            reason = explain.trouble(trouble.code, [problems.line(one) for one in trouble.found], trouble.more)
            yield shapes.FindingView("attention", trouble.ref.key, reason.text)


def _lacking(state: ReadState) -> Found:
    """Quota trees that divide more than the nodes have: after the loss of a node, or from the start."""
    if not state.nodes.nodes or state.unsynced:
        return
    total: Vector = {}
    for node in state.nodes.nodes.values():
        add_into(total, node.allocatable)
    for tree in state.queues.ledger.trees.values():
        if tree.by_shares:  # The capacity of KAI queues is that of the nodes.
            continue
        for name, limit in sorted(tree.nodes[0].limit.items()):
            has = total.get(name, 0)
            if has < limit and name not in COUNTED:
                nodes = counted(len(state.nodes.nodes), "node of the cluster has", "nodes of the cluster have")
                text = say(
                    "{nodes} {has} {name}, and the quotas divide {limit}: jobs with quota may find no node. Add "
                    "nodes, or lower the quotas",
                    nodes=nodes,
                    has=format_quantity(has, name),
                    name=name,
                    limit=format_quantity(limit, name),
                )
                yield shapes.FindingView("attention", tree.ref.key, text)


def _held_up(state: ReadState, lens: Lens) -> Found:
    """Jobs that need an act: jobs that can never start, pods that do not run, Ray clusters that are stuck."""
    held_up = []
    for uid, alike in _looked_at(state, lens).items():
        record, status = state.records[uid], job_status(state, uid)
        text = ""
        if status.pods is not None:
            text = pods.reason(status.pods).text
        elif record.growth.alarm is not None:
            text = raywords.alarm(record.growth.alarm)
        elif CODES[status.code].tone == "act":
            text = jobs.reason(status).text + (
                say(" ({alike} alike)", alike=counted(alike - 1, "more job")) if alike > 1 else ""
            )
        if text:
            held_up.append((record.ref.key, text))
    for key, text in sorted(held_up)[:MOST]:
        yield shapes.FindingView("attention", key, text)
    if len(held_up) > MOST:
        yield shapes.FindingView(
            "attention", "", say("{more} need attention", more=counted(len(held_up) - MOST, "more job"))
        )


def _looked_at(state: ReadState, lens: Lens) -> dict[str, int]:
    """Uid -> number of like jobs: each job that does not wait, and the first job of each waiting shape."""
    waiting = {place.uid: None for shape in state.queues.book.shapes.values() for place in shape.waiting}
    counts = {
        uid: 1
        for uid, record in state.records.items()
        if uid not in waiting and lens.sees(record.ref.namespace) and phase_of(state, uid) not in ENDED
    }
    for shape in state.queues.book.shapes.values():
        mine = [
            place.uid
            for place in shape.waiting
            if place.uid in state.records and lens.sees(state.records[place.uid].ref.namespace)
        ]
        if mine:
            counts[mine[0]] = len(mine)
    return counts


def _paused(state: ReadState) -> Found:
    for text in board_of(state).pauses:
        yield shapes.FindingView("attention", "", text)
