"""What is paused and resumed: annotations on the quota tree in force, or on the Queues of a quota path."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from muster.core.objects.meta import CHANGE_REASON, CHANGED_BY, PREFIX
from muster.core.quota.trees.rules import RuleError, paused_parts
from muster.model.api import QUEUES, QUOTA_TREES, ApiResource
from muster.model.keys import Ref
from muster.model.language import listed, marked, say
from muster.model.quota import ROOT
from muster.serving.board import off_in
from muster.told.readmodel.readstate import ReadState
from muster_cli.api import Api, api_of, check_pair
from muster_cli.console import Output
from muster_cli.exits import FAILED, NOT_FOUND, OK, CliError
from muster_cli.folding import present_view
from muster_cli.following import LIMIT_S, Present
from muster_cli.levers import NO_CLUSTER, UNCONFIRMED
from muster_cli.marking import annotate, annotations_of, author, short
from muster_cli.options import Bus, ClusterOption
from muster_cli.reading import LogReading, locate, opened, tell_which

What = Literal["evictions", "admissions"]
WORDS: dict[What, str] = {"evictions": marked("evictions"), "admissions": marked("admissions")}
PAUSED, BY, REASON = (f"{PREFIX}/{name}" for name in ("paused", "paused-by", "paused-reason"))
RECLAIM = f"{PREFIX}/reclaim"
Change = Callable[[Mapping[str, str]], dict[str, str | None]]
"""From the annotations of an object to the annotations to be set or removed."""


class PauseTarget(Struct, frozen=True):
    """An object that carries a pause. ``path``: of the object's queue; empty for the tree."""

    ref: Ref
    resource: ApiResource
    path: str = ""

    @property
    def name(self) -> str:
        return f"queue {self.path}" if self.path else f"ElasticQuotaTree {self.ref.key}"


class Switchboard(Struct, frozen=True):
    """An open log and an open connection, and what is to be paused or resumed."""

    api: Api
    present: Present
    targets: list[PauseTarget]
    by: str

    async def turn(self, out: Output, change: Change, did: str) -> int:
        """Change every target and say so; returns the exit code: FAILED when the log does not show the change."""
        expected: dict[str, tuple[str, ...]] = {}
        for target in self.targets:
            meta = await annotations_of(self.api.transport, target.resource, target.ref)
            wanted = change(meta.get("annotations") or {})
            if wanted:
                await annotate(self.api.transport, target.resource, target.ref, meta, wanted)
                out.line(say("{did} of {name}", did=did, name=target.name))
            else:
                out.line(say("{name}: nothing to change", name=target.name))
            after: dict[str, Any] = {**(meta.get("annotations") or {}), **wanted}
            expected[target.path] = _parts(after.get(PAUSED) or "")
        if not await self.present.until(lambda state: all(paused_at(state, p) == e for p, e in expected.items())):
            out.note(say(UNCONFIRMED, seconds=f"{LIMIT_S:g}"))
            return FAILED
        return OK


@contextlib.asynccontextmanager
async def switchboard(
    queue: str, out: Output, bus: Bus | None, cluster: ClusterOption | None
) -> AsyncIterator[tuple[Switchboard, LogReading]]:
    """The parts of a pause. Raises CliError without the queue, a tree, a log or a cluster."""
    place = locate(bus)
    tell_which(out, place)
    async with opened(place) as reading, api_of(cluster, place) as api:
        if api is None:
            raise CliError(say(NO_CLUSTER), NOT_FOUND)
        await check_pair(reading, api)
        present = Present(reading)
        targets = targets_of(await present.read(), queue.rstrip("/"))
        yield Switchboard(api, present, targets, await author(api, cluster)), reading


def targets_of(state: ReadState, path: str) -> list[PauseTarget]:
    """The tree in force, or the Queue of a path: for an inner node, the Queues of all leaves below."""
    tree = state.queues.ledger.trees.get(ROOT)
    if tree is None:
        raise CliError(
            say("no quota tree is in force, so there is nothing to pause; apply an ElasticQuotaTree"), NOT_FOUND
        )
    if not path:
        return [PauseTarget(tree.ref, QUOTA_TREES)]
    leaves = [node.path for node in tree.nodes if not node.children]
    below = [leaf for leaf in leaves if leaf == path or leaf.startswith(f"{path}/")]
    if not below:
        raise CliError(
            say("there is no queue {path}; there are {leaves}", path=path, leaves=listed(leaves[:20])), NOT_FOUND
        )
    shown = {state.queues.queue_paths.get(uid, ""): queue.ref for uid, queue in state.queue_objects.items()}
    missing = [leaf for leaf in below if leaf not in shown]
    if missing:
        raise CliError(
            say("there is no Queue object of {missing} yet; a Muster that acts makes one", missing=missing[0]),
            NOT_FOUND,
        )
    return [PauseTarget(shown[leaf], QUEUES, leaf) for leaf in below]


def paused_at(state: ReadState, path: str) -> tuple[str, ...]:
    """The pauses by the object of a path, as the log shows; by the tree for an empty path."""
    if path:
        return state.queues.paused.get(path, ())
    return state.queues.ledger.rules_of(ROOT).paused


def pausing(part: What, by: str, reason: str) -> Change:
    """Pause, with author and reason."""

    def change(present: Mapping[str, str]) -> dict[str, str | None]:
        parts = sorted({*_parts(present.get(PAUSED, "")), part})
        return {PAUSED: ",".join(parts), BY: by, REASON: short(reason) or None}

    return change


def resuming(part: What, *, by: str = "", reason: str = "", enable: bool = False) -> Change:
    """Resume; with nothing left, its author and reason go too. ``enable``: turn reclaim on.

    ``by`` and ``reason``: the author and the reason, kept where anything changes.
    """

    def change(present: Mapping[str, str]) -> dict[str, str | None]:
        before = _parts(present.get(PAUSED, ""))
        left = [other for other in before if other != part]
        wanted: dict[str, str | None] = {}
        if part in before:
            wanted = {PAUSED: ",".join(left)} if left else {PAUSED: None, BY: None, REASON: None}
        if enable and RECLAIM not in present:
            wanted[RECLAIM] = "enabled"
        if wanted and by:
            wanted |= {CHANGED_BY: by, CHANGE_REASON: short(reason) or None}
        return wanted

    return change


def _parts(text: str) -> tuple[str, ...]:
    """The actions that an annotation pauses; none for an unreadable annotation, which is overwritten."""
    try:
        return paused_parts(text)
    except RuleError:
        return ()


async def reclaim_is_off(reading: LogReading) -> bool:
    """Whether nothing is reclaimed only because foreign work ran when the cluster was first seen."""
    return any(not off.declared for off in off_in(await present_view(reading)))
