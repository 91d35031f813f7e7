"""Claims for age: how much jobs that have waited too long may cost the others, per node of the quota tree.

The quota that is held for such a job is idle; once the job runs, it uses quota that a younger or shorter job would
have had. Both are small parts of the node's limit, on average: after a job that takes more at once, nothing is
held for age at this node until the average is reached again.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from muster.core.quota.demand import chain_of, counted
from muster.core.quota.ledger.idling import limit_of, paid_back_ms
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
    """A claim for age: the node at which it is held, and what was idle there for it, as the claim counts it."""

    top: str
    idle: Vector = field(default_factory=dict)


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
            self._paid_back(before, ledger, now)
        self.claims[uid] = AgeClaim(top)

    def time_passed(self, ledger: Ledger) -> None:
        """What is idle was so for longer."""
        for uid, claim in self.claims.items():
            claim.idle = dict(ledger.claims.by_uid[uid].idle)

    def looked(self, ledger: Ledger, now: int, served: str = "") -> None:
        """Claims may be over; ``served``: uid of the admitted workload."""
        for uid, claim in list(self.claims.items()):
            standing = ledger.claims.by_uid.get(uid)
            if standing is None or standing.firm:
                del self.claims[uid]
                if served and standing is None:
                    part = _part(ledger, claim.top, counted(ledger.charges[served].demand))
                    self.runs[served] = AgeRun(claim.top, part)
                self._paid_back(claim, ledger, now)

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

    def _paid_back(self, claim: AgeClaim, ledger: Ledger, now: int) -> None:
        self._rest(claim.top, now, paid_back_ms(ledger, claim.top, claim.idle, IDLE_PART))

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


def _part(ledger: Ledger, path: str, amounts: Vector) -> int:
    """Millionths of a node's limit, of the resource of which it is most."""
    limits = {name: limit_of(ledger, path, name) for name in amounts}
    return max((amounts[name] * MILLION // limit for name, limit in limits.items() if limit), default=0)
