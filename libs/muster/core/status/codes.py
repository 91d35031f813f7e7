"""Which code a refusal has: rules that need no state."""

from __future__ import annotations

from typing import Literal, Protocol

from muster.core.status.values import JobCode
from muster.events.refusals import RefusalReason

RefusalCode = Literal[
    "InsufficientQuota",
    "InsufficientMinQuota",
    "InsufficientRuntimeQuota",
    "ExceedsMaxQuota",
    "ExceedsMinQuota",
    "QuotaHeld",
]

REFUSED: dict[RefusalReason, JobCode] = {
    "cannot_suspend": "CannotSuspend",
    "unbound": "NoQuota",
    "unreadable": "Unreadable",
    "no_tree": "NoQuotaTree",
    "held": "Held",
    "two_quotas": "TwoQuotas",
    "queue_label_missing": "QueueLabelMissing",
    "queue_unknown": "QueueDoesNotExist",
}
"""Why a job that asks to be queued is not -> its code."""


def refused_code(reason: str) -> JobCode:
    """The code of a refusal as the log names it. Raises KeyError for one that no stage gives."""
    return {str(each): code for each, code in REFUSED.items()}[reason]


class LimitRefusal(Protocol):
    """The limit that refuses a demand, with numbers in base units: a Shortfall, a Denial or a QuotaDenied."""

    @property
    def path(self) -> str: ...
    @property
    def resource(self) -> str: ...
    @property
    def asked(self) -> int: ...
    @property
    def used(self) -> int: ...
    @property
    def limit(self) -> int: ...
    @property
    def of_min(self) -> bool: ...
    @property
    def held(self) -> int: ...
    @property
    def of_runtime(self) -> bool: ...


def refusal_code(refusal: LimitRefusal, *, holder: str = "") -> RefusalCode:
    """``holder``: namespace/name of the job for which part of the quota is held, if any is."""
    if refusal.of_min:
        return "ExceedsMinQuota" if refusal.asked > refusal.limit else "InsufficientMinQuota"
    if refusal.of_runtime:
        return "InsufficientRuntimeQuota"
    if refusal.asked > refusal.limit:
        return "ExceedsMaxQuota"
    return "QuotaHeld" if refusal.held and holder else "InsufficientQuota"
