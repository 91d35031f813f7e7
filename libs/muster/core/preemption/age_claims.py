"""Claims for age: how much jobs that have waited too long may cost the others, per node of the quota tree.

The quota that is held for such a job is idle; once the job runs, it uses quota that a younger or shorter job would
have had. Both are small parts of the node's limit, on average: after a job that takes more at once, nothing is
held for age at this node until the average is reached again.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from muster.core.quota.demand import chain_of, counted
from muster.core.quota.ledger.ledger import Ledger
from muster.model.demand import Shortfall
from muster.model.resources import Vector, add_into

RUNS_PART = 20
"""Jobs admitted by claims for age hold one part in this many of the node's limit: at a time, but for one job that is
wider by itself, and on average."""

IDLE_PART = 200
"""One part in this many of a node's limit is idle for age, on average."""

MILLION = 1_000_000


class AgeClaim(Struct):
    """A claim for age: the node at which it is held, and the quota that was idle there for it."""

    top: str
    since: int
    """Log time (ms) up to which ``idle`` is counted."""
    part: int = 0
    """Millionths of the node's limit that were idle since then."""
    idle: int = 0
    """Millionths times ms."""


class AgeRun(Struct, frozen=True):
    """A job that was admitted by a claim for age: the node of the claim, and its part of the limit of that node."""

    top: str
    part: int
    """Millionths."""


class AgeClaims(Struct):
    """What is held for age, what runs by it, and until when a node has had enough of both."""

    claims: dict[str, AgeClaim] = field(default_factory=dict)
    """claimant uid -> its claim for age in force"""
    runs: dict[str, AgeRun] = field(default_factory=dict)
    """uid of a charged workload that was admitted by a claim for age -> where"""
    rests: dict[str, int] = field(default_factory=dict)
    """node -> log time (ms) until which nothing more is held there for age"""

    def opened(self, uid: str, top: str, ledger: Ledger, now: int) -> None:
        before = self.claims.get(uid)
        if before is not None:  # It was held further down until now.
            self._rest(before.top, now, (before.idle + before.part * (now - before.since)) * IDLE_PART // MILLION)
        self.claims[uid] = AgeClaim(top, now, _idle(ledger, uid, top))

    def looked(self, ledger: Ledger, now: int, served: str = "") -> None:
        """Idle amounts may have changed, and claims may be over; ``served``: uid of the admitted workload."""
        for uid, claim in list(self.claims.items()):
            claim.idle += claim.part * (now - claim.since)
            claim.since, claim.part = now, _idle(ledger, uid, claim.top)
            standing = ledger.claims.by_uid.get(uid)
            if standing is None or standing.firm:
                del self.claims[uid]
                if served and standing is None:
                    part = _part(ledger, claim.top, counted(ledger.charges[served].demand))
                    self.runs[served] = AgeRun(claim.top, part)
                self._rest(claim.top, now, claim.idle * IDLE_PART // MILLION)

    def left(self, uid: str, since: int | None, now: int) -> None:
        """A charge was released that had run since ``since``: a job wider than ``RUNS_PART`` allows took too much."""
        run = self.runs.pop(uid, None)
        if run is not None and since is not None and run.part * RUNS_PART > MILLION:
            self._rest(run.top, now, (now - since) * (run.part * RUNS_PART - MILLION) // MILLION)

    def held(self, ledger: Ledger) -> dict[str, Vector]:
        """Node -> what runs by claims for age that were held there."""
        found: dict[str, Vector] = {}
        for uid, run in self.runs.items():
            charge = ledger.charges.get(uid)
            if charge is not None:
                add_into(found.setdefault(run.top, {}), counted(charge.demand))
        return found

    def rests_until(self, queue: str) -> int:
        """Log time (ms) until which nothing is held for a job of a queue; 0 for none."""
        return max((self.rests.get(path, 0) for path in chain_of(queue)), default=0) if self.rests else 0

    def _rest(self, top: str, now: int, pause: int) -> None:
        """A node rests for so long (ms); rests that are over are forgotten."""
        until = max(now + pause, self.rests.get(top, 0))
        self.rests = {path: at for path, at in {**self.rests, top: until}.items() if at > now}


def has_room(top: Shortfall, held: Mapping[str, Vector]) -> bool:
    """Whether what runs by claims for age leaves room for one more that a limit refuses; for one always. ``held``: as
    of ``AgeClaims.held``.
    """
    already = held.get(top.path, {}).get(top.resource, 0)
    return not already or (already + top.asked) * RUNS_PART <= top.limit


def _idle(ledger: Ledger, uid: str, top: str) -> int:
    """Millionths of a node's limit that are free, as far as a claim asks for them."""
    claim, node, used = ledger.claims.by_uid.get(uid), ledger.nodes.get(top), ledger.used.get(top, {})
    if claim is None or node is None:
        return 0
    asked = counted(claim.demand)
    free = {name: min(asked[name], max(node.limit.get(name, 0) - used.get(name, 0), 0)) for name in asked}
    return _part(ledger, top, free)


def _part(ledger: Ledger, path: str, amounts: Vector) -> int:
    """Millionths of a node's limit, of the resource of which it is most."""
    node = ledger.nodes.get(path)
    limits = node.limit if node is not None else {}
    return max((amount * MILLION // limits[name] for name, amount in amounts.items() if limits.get(name)), default=0)
