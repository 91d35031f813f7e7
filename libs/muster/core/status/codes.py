"""Which code a refusal has: rules that need no state."""

from __future__ import annotations

from typing import Literal

from muster.core.status.values import JobCode
from muster.events.refusals import RefusalReason
from muster.model.demand import Shortfall

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


def refusal_code(refusal: Shortfall, *, holder: str = "") -> RefusalCode:
    """``holder``: namespace/name of the job for which part of the quota is held, if any is."""
    if refusal.of_min:
        return "ExceedsMinQuota" if refusal.asked > refusal.limit else "InsufficientMinQuota"
    if refusal.of_runtime:
        return "InsufficientRuntimeQuota"
    if refusal.asked > refusal.limit:
        return "ExceedsMaxQuota"
    return "QuotaHeld" if refusal.held and holder else "InsufficientQuota"
