"""Why a job is not queued, in English: the problem, with the names, and the way out."""

from __future__ import annotations

from collections.abc import Callable

from muster.core.objects.labels import KAI_QUEUE, QUOTA_NAME
from muster.core.wording import problems
from muster.events.refusals import Refusal, RefusalDetail, RefusalReason


def refused(refusal: Refusal, kind: str, job: str) -> str:
    """One sentence. ``kind`` and ``job`` (namespace/name): of the refused one."""
    say = _DETAILS.get(refusal.detail) or _REASONS[refusal.reason]
    return say(refusal, kind, job)


def _held(refusal: Refusal, _kind: str, job: str) -> str:
    by, why = f" by {refusal.name}" if refusal.name else "", f": {refusal.text}" if refusal.text else ""
    return f"on hold{by}{why}; `muster release {job}` queues it again"


def _unclaimed(refusal: Refusal, _kind: str, job: str) -> str:
    return (
        f"no quota claims namespace {job.partition('/')[0]}; add it to the namespaces of a leaf of ElasticQuotaTree "
        f"{refusal.name}, or name a leaf with the label {QUOTA_NAME}"
    )


def _not_unique(refusal: Refusal, _kind: str, _job: str) -> str:
    called = f"{refusal.count} are called so: {', '.join(refusal.names)}"
    return f"its label names quota {refusal.name}, and {called}; rename them"


def _two_quotas(refusal: Refusal, _kind: str, job: str) -> str:
    namespace = f"namespace {job.partition('/')[0]} belongs to"
    whose = f"{namespace if refusal.detail == 'by_namespace' else 'its label names'} quota {refusal.other}"
    both = f"label {KAI_QUEUE} names queue {refusal.name}, and {whose} of an ElasticQuotaTree"
    return f"{both}: it can be charged to one of them only; remove the label, or take the other one away"


def _label_missing(refusal: Refusal, kind: str, _job: str) -> str:
    add = f"add label {KAI_QUEUE} with one of {_leaves(refusal)}"
    return f"Queue label missing from {kind}; pods will remain pending: {add}"


def _broken(refusal: Refusal) -> str:
    return problems.line(refusal.problem) if refusal.problem is not None else ""


def _leaves(refusal: Refusal) -> str:
    """The queues that take work."""
    more = ", …" if refusal.count > len(refusal.names) else ""
    return f"{', '.join(refusal.names)}{more}" if refusal.names else "the queues you create"


_REASONS: dict[RefusalReason, Callable[[Refusal, str, str], str]] = {
    "cannot_suspend": lambda refusal, _kind, _job: _broken(refusal),
    "unreadable": lambda refusal, _kind, _job: _broken(refusal),
    "unbound": _unclaimed,
    "held": _held,
    "no_tree": lambda _refusal, _kind, _job: (
        "no valid ElasticQuotaTree is in force in kube-system; apply one and it is queued"
    ),
    "two_quotas": _two_quotas,
    "queue_label_missing": _label_missing,
    "queue_unknown": lambda refusal, _kind, _job: f"Queue '{refusal.name}' takes no work",
}
_DETAILS: dict[RefusalDetail, Callable[[Refusal, str, str], str]] = {
    "namespace_unclaimed": _unclaimed,
    "quota_missing": lambda refusal, _kind, _job: (
        f"its label names quota {refusal.name}, and the tree has none of that name; correct the label or remove it"
    ),
    "quota_has_children": lambda refusal, _kind, _job: (
        f"its label names quota {refusal.name}, which has children; name one of those instead"
    ),
    "quota_not_unique": _not_unique,
    "by_label": _two_quotas,
    "by_namespace": _two_quotas,
    "queue_missing": lambda refusal, _kind, _job: (
        f"Queue '{refusal.name}' does not exist: create it, or name one of {_leaves(refusal)} in label {KAI_QUEUE}"
    ),
    "queue_disabled": lambda refusal, _kind, _job: f"Queue '{refusal.name}' is disabled: {_broken(refusal)}",
    "queue_has_children": lambda refusal, _kind, _job: (
        f"Queue '{refusal.name}' has queues below it, and takes no work itself: name one of {', '.join(refusal.names)}"
    ),
}
