"""The codes a job may have: one row for each, and nothing else lists them.

A row is all that readers ask of a code: Events, QueueUnits, colours, promises, the page docs/reference/status.md. Its
sentences are made in ``core.wording.jobs``, of the values that the row names. The table is checked when it is imported.
"""

from __future__ import annotations

from typing import Literal

from muster.core.codes.rows import NOTHING, Code
from muster.core.codes.values import (
    Adoption,
    NoPlace,
    NotQueued,
    Over,
    Pause,
    Rest,
    Retry,
    Short,
    Start,
    Suspended,
    Unlisted,
    Untried,
)
from muster.events.refusals import RefusalReason
from muster.model.closed import IncompleteTableError, total

JobCode = Literal[
    "Seen",
    "NotSynced",
    "NoQuotaTree",
    "NoQuota",
    "TwoQuotas",
    "QueueLabelMissing",
    "QueueDoesNotExist",
    "CannotSuspend",
    "Held",
    "Unreadable",
    "Unmanaged",
    "NotSuspended",
    "Queued",
    "BeingTried",
    "LogNearlyFull",
    "Paused",
    "BehindHead",
    "InsufficientQuota",
    "InsufficientMinQuota",
    "InsufficientRuntimeQuota",
    "ExceedsMaxQuota",
    "ExceedsMinQuota",
    "QuotaHeld",
    "QuotaKept",
    "WaitingForClaim",
    "ResumeFailed",
    "GangUnschedulable",
    "RunningTimeout",
    "StaleGang",
    "Reclaimed",
    "Preempted",
    "Reserved",
    "AwaitingNodes",
    "WouldBeAdmitted",
    "Admitted",
    "Starting",
    "Running",
    "Adopted",
    "SuspendedOutside",
    "Finished",
    "FinishedStillCharged",
    "DeletedStillCharged",
    "Gone",
]


def _refused(reason: RefusalReason, means: str, do: str) -> Code:
    return Code(
        phases=("refused",),
        tone="act",
        lasts="final",
        event="while",
        values=NotQueued,
        refuses=reason,
        means=means,
        do=do,
    )


CODES: dict[JobCode, Code] = {
    "Seen": Code(
        phases=("seen",),
        lasts="moment",
        values=Untried,
        means="It was seen, and nothing has been decided about it yet.",
    ),
    "NotSynced": Code(
        phases=("seen", "outside", "waiting", "refused"),
        values=Unlisted,
        means="The cluster is not fully listed yet; nothing is admitted until it is.",
        do="If it lasts: `muster doctor` names what cannot be listed.",
    ),
    "NoQuotaTree": _refused("no_tree", "No valid ElasticQuotaTree is in force.", "Apply one."),
    "NoQuota": _refused(
        "unbound",
        "No leaf of the tree claims its namespace, or its label names none.",
        "Add the namespace to a leaf, or correct the label.",
    ),
    "CannotSuspend": _refused(
        "cannot_suspend",
        "Its controller could never suspend it again; the message names the field.",
        "Change the field that is named.",
    ),
    "TwoQuotas": _refused(
        "two_quotas",
        "Its label names a KAI queue, and an ElasticQuotaTree claims it as well.",
        "Take the label away, or the namespace out of the tree.",
    ),
    "QueueLabelMissing": _refused(
        "queue_label_missing",
        "There are KAI queues, and neither a label nor its namespace leads it to one.",
        "Set the label `kai.scheduler/queue` to a leaf queue.",
    ),
    "QueueDoesNotExist": _refused(
        "queue_unknown",
        "The KAI queue its label names does not exist, is disabled, or is no leaf.",
        "Create the queue, or correct the label.",
    ),
    "Held": _refused("held", "It is on hold; the message names the author and the reason.", "`muster release JOB`."),
    "Unreadable": _refused(
        "unreadable",
        "The object cannot be read; the message names the field.",
        "Correct the object: it is queued then.",
    ),
    "Unmanaged": Code(
        phases=("outside",),
        tone="plain",
        means="It is not suspended, and no quota claims its namespace: Muster leaves it alone.",
        do="Add the namespace to a leaf if it is to be queued.",
    ),
    "NotSuspended": Code(
        phases=("outside",),
        tone="plain",
        means="It was created without being suspended, so it is not queued; it is charged as soon as it runs.",
        do="Create jobs suspended; the admission policies in deploy/policies do it.",
    ),
    "Queued": Code(
        lasts="moment",
        turn=True,
        values=Untried,
        means="It waits in its queue and is next to be evaluated.",
    ),
    "BeingTried": Code(
        lasts="moment",
        turn=True,
        means="It is being evaluated right now.",
    ),
    "LogNearlyFull": Code(
        tone="act",
        lasts="moment",
        means="The log is nearly full: nothing is admitted until its next generation is in force.",
        do="`muster log roll`, or look why the keeper does not.",
    ),
    "Paused": Code(
        tone="act",
        event="while",
        values=Pause,
        means="Admissions are paused, by the named author.",
        do="`muster resume admissions`.",
    ),
    "BehindHead": Code(
        event="while",
        means="The policy of its queue is `Block`: no job passes the head, and others are before it.",
        do="`muster why JOB` names them: look at the first; hold or delete it, or choose the policy `Round`.",
    ),
    "InsufficientQuota": Code(
        event="while",
        turn=True,
        values=Short,
        holders="all",
        kai="OverLimit",
        means="The quota that is named has no room for it now.",
        do="Wait for jobs to end, or raise the max; `muster why JOB` names the jobs that hold the quota.",
    ),
    "InsufficientMinQuota": Code(
        event="while",
        turn=True,
        values=Short,
        holders="firm",
        kai="NonPreemptibleOverQuota",
        means="It is not preemptible, and running jobs that are not preemptible fill the min.",
        do="Wait, raise the min, or make it preemptible; `muster why JOB` names those jobs.",
    ),
    "InsufficientRuntimeQuota": Code(
        event="while",
        turn=True,
        values=Short,
        holders="all",
        means="The part of the quota that weights give its queue now has no room for it.",
        do="Wait for jobs to end or others to ask for less; `muster why JOB` names the jobs that hold it.",
    ),
    "ExceedsMaxQuota": Code(
        tone="act",
        lasts="final",
        event="while",
        values=Short,
        kai="OverLimit",
        means="It asks for more than the max: it can never be admitted.",
        do="Lower the request or raise the max.",
    ),
    "ExceedsMinQuota": Code(
        tone="act",
        lasts="final",
        event="while",
        values=Short,
        kai="NonPreemptibleOverQuota",
        means="It is not preemptible and asks for more than the min: it can never be admitted.",
        do="Raise the min, lower the request, or make it preemptible.",
    ),
    "QuotaHeld": Code(
        event="while",
        turn=True,
        values=Short,
        holders="all",
        means="Part of the quota is held for the job that is named.",
        do="Wait until that job has started.",
    ),
    "QuotaKept": Code(
        event="while",
        turn=True,
        values=Short,
        holders="all",
        means="What is free is kept for queues that have wanted it of their guarantees lately "
        "(`muster.dev/borrow-freely`).",
        do="Wait: it borrows once enough is free, or once its queue is below its guarantee, or after a week.",
    ),
    "WaitingForClaim": Code(
        event="while",
        turn=True,
        values=Short,
        holders="all",
        means="Quota that others release is held for it; it starts when enough is released.",
    ),
    "ResumeFailed": Code(
        tone="act",
        event="while",
        values=Retry,
        means="The API server refused to resume it; it is tried again at the time that is named.",
        do="Look at what the API server said: often a webhook or a policy.",
    ),
    "GangUnschedulable": Code(
        tone="act",
        values=NoPlace,
        means="Its gang has no place on the nodes: it holds no quota, and is tried again when they have room.",
        do="Free or add nodes, or change what the pods ask of them.",
    ),
    "RunningTimeout": Code(
        phases=("waiting", "leaving"),
        tone="act",
        event="while",
        values=Suspended,
        started=True,
        means="It was admitted and did not come to run in time: suspended, and queued again after a pause.",
        do="Look at its pods' Events: an image, a volume, an operator.",
    ),
    "StaleGang": Code(
        phases=("waiting", "leaving"),
        tone="act",
        event="while",
        values=Suspended,
        started=True,
        means="Its gang had fewer pods than it needs for too long, in a KAI queue: suspended, and queued again.",
        do="Look at what became of its pods; `kai.scheduler/staleness-grace-period` gives it more time.",
    ),
    "Reclaimed": Code(
        phases=("waiting", "leaving"),
        event="after",
        values=Suspended,
        started=True,
        means="It is suspended so that another queue gets its min, or its fair share.",
        do="Nothing; it is queued again.",
    ),
    "Preempted": Code(
        phases=("waiting", "leaving"),
        event="after",
        values=Suspended,
        started=True,
        means="It is suspended for a job of higher priority in its own queue, or for one that has had less GPU time; "
        "or it is moved to other nodes so that another has room.",
        do="Nothing; it is queued again.",
    ),
    "Reserved": Code(
        phases=("reserved",),
        tone="good",
        lasts="moment",
        means="Its quota is reserved; next it is admitted.",
    ),
    "AwaitingNodes": Code(
        phases=("reserved",),
        tone="act",
        values=NoPlace,
        means="Its quota is reserved and the gang waits for nodes; the message counts why each refuses.",
        do="Free or add nodes, or change what the pods ask of them.",
    ),
    "WouldBeAdmitted": Code(
        phases=("admitted",),
        tone="good",
        lasts="moment",
        means="It would be resumed, if this Muster did not only observe.",
        do="Run with --act.",
    ),
    "Admitted": Code(
        phases=("admitted",),
        tone="good",
        lasts="moment",
        means="It was admitted and is being resumed.",
    ),
    "Starting": Code(
        phases=("admitted",),
        tone="good",
        values=Start,
        started=True,
        means="It is resumed and does not run yet.",
        do="If nothing exists of it: look whether its operator runs.",
    ),
    "Running": Code(
        phases=("running",),
        tone="good",
        started=True,
        means="It runs, charged at its queue.",
    ),
    "Adopted": Code(
        phases=("admitted", "running"),
        tone="good",
        values=Adoption,
        started=True,
        means="It runs without an admission: it ran when first seen, or was started without one later.",
        do="If that should not be: apply the admission policies in deploy/policies.",
    ),
    "SuspendedOutside": Code(
        phases=("leaving",),
        event="while",
        values=Rest,
        started=True,
        means="It was suspended by another client after its admission; it is charged until its pods are gone.",
        do="Nothing; it is queued again.",
    ),
    "Finished": Code(phases=("finished",), tone="plain", values=Over, means="It has ended and holds no quota."),
    "FinishedStillCharged": Code(
        phases=("finished",),
        tone="plain",
        values=Over,
        means="It has ended, and its pods that still exist count.",
        do="Shorten ttlSecondsAfterFinished, or delete what is left.",
    ),
    "DeletedStillCharged": Code(
        phases=("gone",),
        tone="plain",
        values=Rest,
        means="It was deleted, and pods of it still exist.",
        do="Look at finalizers and at pods that do not end.",
    ),
    "Gone": Code(
        phases=("gone",),
        tone="plain",
        values=Over,
        means="It was deleted and holds no quota.",
    ),
}

FILE = "libs/muster/core/codes/codes.py (CODES)"

REFUSED: dict[RefusalReason, JobCode] = {row.refuses: code for code, row in CODES.items() if row.refuses}

total(CODES, JobCode, FILE)
total(REFUSED, RefusalReason, f"{FILE}, field refuses,")
for _code, _row in CODES.items():
    if _row.tone == "act" and _row.do.startswith(NOTHING[:-1]):
        raise IncompleteTableError(f"{FILE}: {_code} asks for an act and its advice is nothing")
    if _row.holders != "none" and _row.values is not Short:
        raise IncompleteTableError(f"{FILE}: {_code} names holders and has no Short, whose holders they would be")
