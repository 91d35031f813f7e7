"""Why a job is not queued, in English: the problem, with the names, and the way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from muster.core.objects.labels import KAI_QUEUE, QUOTA_NAME
from muster.core.wording import problems
from muster.events.refusals import Refusal, RefusalDetail, RefusalReason
from muster.model.closed import total

Say = Callable[[Refusal, str, str], str]
FILE = "libs/muster/core/wording/refusals.py"


class RefusalWords(NamedTuple):
    """Of one reason: its sentence, its meaning on the page of codes, and the way out."""

    say: Say
    means: str
    do: str


def refused(refusal: Refusal, kind: str, job: str) -> str:
    """One sentence. ``kind`` and ``job`` (namespace/name): of the refused one."""
    say = _DETAILS.get(refusal.detail) or WORDS[refusal.reason].say
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
    other = "take the namespace out of that quota" if refusal.detail == "by_namespace" else "that label"
    return f"{both}: it can be charged to one of them only; remove label {KAI_QUEUE}, or {other}"


def _label_missing(refusal: Refusal, kind: str, _job: str) -> str:
    add = f"add label {KAI_QUEUE} with one of {_leaves(refusal)}"
    return f"Queue label missing from {kind}; pods will remain pending: {add}"


def _broken(refusal: Refusal) -> str:
    return problems.line(refusal.problem) if refusal.problem is not None else ""


def _leaves(refusal: Refusal) -> str:
    """The queues that take work."""
    more = ", …" if refusal.count > len(refusal.names) else ""
    return f"{', '.join(refusal.names)}{more}" if refusal.names else "the queues you create"


def _in_circles(refusal: Refusal, _kind: str, job: str) -> str:
    what = {"quota_denied": "its quota was denied", "quota_released": "its quota was released before it ran"}
    said = what.get(refusal.name, "it left its queue")
    return (
        f"set aside: {refusal.count} times in a row {said} ({refusal.other}), though nothing had changed; it is queued "
        f"again when the job or its quota changes, or with `muster hold {job}` and then `muster release {job}`"
    )


WORDS: dict[RefusalReason, RefusalWords] = {
    "cannot_suspend": RefusalWords(
        lambda refusal, _kind, _job: _broken(refusal),
        "Its controller could never suspend it again; the message names the field.",
        "Change the field that is named.",
    ),
    "unreadable": RefusalWords(
        lambda refusal, _kind, _job: _broken(refusal),
        "The object cannot be read; the message names the field.",
        "Correct the object: it is queued then.",
    ),
    "unbound": RefusalWords(
        _unclaimed,
        "No leaf of the tree claims its namespace, or its label names none.",
        "Add the namespace to a leaf, or correct the label.",
    ),
    "held": RefusalWords(_held, "It is on hold; the message names the author and the reason.", "`muster release JOB`."),
    "no_tree": RefusalWords(
        lambda _refusal, _kind, _job: (
            "no valid ElasticQuotaTree is in force in kube-system; apply one and it is queued"
        ),
        "No valid ElasticQuotaTree is in force.",
        "Apply one.",
    ),
    "two_quotas": RefusalWords(
        _two_quotas,
        "Its label names a KAI queue, and an ElasticQuotaTree claims it as well.",
        "Take the label away, or the namespace out of the tree.",
    ),
    "queue_label_missing": RefusalWords(
        _label_missing,
        "There are KAI queues, and neither a label nor its namespace leads it to one.",
        "Set the label `kai.scheduler/queue` to a leaf queue.",
    ),
    "queue_unknown": RefusalWords(
        lambda refusal, _kind, _job: f"Queue '{refusal.name}' takes no work",
        "The KAI queue its label names does not exist, is disabled, or is no leaf.",
        "Create the queue, or correct the label.",
    ),
    "set_aside": RefusalWords(
        _in_circles,
        "It was tried three times in a row and answered the same way, though nothing had changed: a defect, or a "
        "service with wrong settings; the message names the answer.",
        "Look at the answer in `muster why JOB`; `muster hold JOB` and `muster release JOB` have it tried again.",
    ),
}
_DETAILS: dict[RefusalDetail, Say] = {
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

total(WORDS, RefusalReason, f"{FILE} (WORDS)")
total({"": None, **_DETAILS}, RefusalDetail, f"{FILE} (_DETAILS)")
