"""Every code a job may stand at: what it means, and what to do. docs/reference/status.md is made of it.

A code without a row here fails a test.
"""

from __future__ import annotations

from typing import NamedTuple

from muster.core.status.values import JobCode, Phase


class Meaning(NamedTuple):
    """A row of the page. ``phases``: the states in which a job may have the code."""

    phases: tuple[Phase, ...]
    means: str
    do: str


NOTHING = "Nothing."

MEANINGS: dict[JobCode, Meaning] = {
    "Seen": Meaning(("seen",), "It was seen, and nothing has been decided about it yet.", NOTHING),
    "NotSynced": Meaning(
        ("seen", "outside", "waiting", "refused"),
        "The cluster is not fully listed yet; nothing is admitted until it is.",
        "If it lasts: `muster doctor` names what cannot be listed.",
    ),
    "NoQuotaTree": Meaning(("refused",), "No valid ElasticQuotaTree is in force.", "Apply one."),
    "NoQuota": Meaning(
        ("refused",),
        "No leaf of the tree claims its namespace, or its label names none.",
        "Add the namespace to a leaf, or correct the label.",
    ),
    "CannotSuspend": Meaning(
        ("refused",),
        "Its controller could never suspend it again; the message names the field.",
        "Change the field that is named.",
    ),
    "TwoQuotas": Meaning(
        ("refused",),
        "Its label names a KAI queue, and an ElasticQuotaTree claims it as well.",
        "Take the label away, or the namespace out of the tree.",
    ),
    "QueueLabelMissing": Meaning(
        ("refused",),
        "There are KAI queues, and neither a label nor its namespace leads it to one.",
        "Set the label `kai.scheduler/queue` to a leaf queue.",
    ),
    "QueueDoesNotExist": Meaning(
        ("refused",),
        "The KAI queue its label names does not exist, is disabled, or is no leaf.",
        "Create the queue, or correct the label.",
    ),
    "Held": Meaning(("refused",), "Somebody holds it back, with the reason they gave.", "`muster release JOB`."),
    "Unreadable": Meaning(
        ("refused",),
        "The object cannot be read; the message names the field.",
        "Correct the object: it is queued then.",
    ),
    "Unmanaged": Meaning(
        ("outside",),
        "It is not suspended, and no quota claims its namespace: Muster leaves it alone.",
        "Add the namespace to a leaf if it is to be queued.",
    ),
    "NotSuspended": Meaning(
        ("outside",),
        "It was created without being suspended, so it is not queued; it is charged as soon as it runs.",
        "Create jobs suspended; the admission policies in deploy/policies do it.",
    ),
    "Queued": Meaning(("waiting",), "It waits in its queue and is about to be tried.", NOTHING),
    "BeingTried": Meaning(("waiting",), "It is being tried right now.", NOTHING),
    "LogNearlyFull": Meaning(
        ("waiting",),
        "The log is nearly full: nothing is admitted until its next generation is in force.",
        "`muster log roll`, or look why the keeper does not.",
    ),
    "Paused": Meaning(("waiting",), "Admissions are paused, by the named author.", "`muster resume admissions`."),
    "BehindHead": Meaning(
        ("waiting",),
        "The policy of its queue is `Block`: nobody passes the head, and others stand before it.",
        "`muster why JOB` names them: look at the first; hold or delete it, or choose the policy `Round`.",
    ),
    "InsufficientQuota": Meaning(
        ("waiting",),
        "The quota that is named has no room for it now.",
        "Wait for jobs to end, or raise the max; `muster why JOB` names who holds the quota.",
    ),
    "InsufficientMinQuota": Meaning(
        ("waiting",),
        "It is not preemptible, and what of that kind runs fills the min.",
        "Wait, raise the min, or make it preemptible.",
    ),
    "InsufficientRuntimeQuota": Meaning(
        ("waiting",),
        "The part of the quota that weights give its queue now has no room for it.",
        "Wait for jobs to end or others to ask for less.",
    ),
    "ExceedsMaxQuota": Meaning(
        ("waiting",), "It asks for more than the max: it can never be admitted.", "Lower the request or raise the max."
    ),
    "ExceedsMinQuota": Meaning(
        ("waiting",),
        "It is not preemptible and asks for more than the min: it can never be admitted.",
        "Raise the min, lower the request, or make it preemptible.",
    ),
    "QuotaHeld": Meaning(
        ("waiting",), "What is free is held for the job that is named.", "Wait until that has started."
    ),
    "QuotaKept": Meaning(
        ("waiting",),
        "What is free is kept for queues that have wanted it of their guarantees lately (`muster.dev/borrow-freely`).",
        "Wait: it borrows once enough is free, or once its queue is below its guarantee, or after a week.",
    ),
    "WaitingForClaim": Meaning(
        ("waiting",), "What others give back is held for it; it starts when enough has left.", NOTHING
    ),
    "ResumeFailed": Meaning(
        ("waiting",),
        "The API server refused to resume it; it is tried again at the time that is named.",
        "Look at what the API server said: often a webhook or a policy.",
    ),
    "GangUnschedulable": Meaning(
        ("waiting",),
        "Its gang has no place on the nodes: it holds no quota, and is tried again when they have room.",
        "Free or add nodes, or change what the pods ask of them.",
    ),
    "RunningTimeout": Meaning(
        ("waiting", "leaving"),
        "It was admitted and did not come to run in time: suspended, and queued again after a pause.",
        "Look at its pods' Events: an image, a volume, an operator.",
    ),
    "StaleGang": Meaning(
        ("waiting", "leaving"),
        "Its gang had fewer pods than it needs for too long, in a KAI queue: suspended, and queued again.",
        "Look at what became of its pods; `kai.scheduler/staleness-grace-period` gives it more time.",
    ),
    "Reclaimed": Meaning(
        ("waiting", "leaving"), "It is suspended so that another queue gets its min.", "Nothing; it is queued again."
    ),
    "Preempted": Meaning(
        ("waiting", "leaving"),
        "It is suspended for a job of higher priority in its own queue, or for one that has had less GPU time; or it "
        "is moved to other nodes so that another has room.",
        "Nothing; it is queued again.",
    ),
    "Reserved": Meaning(("reserved",), "Its quota is reserved; next it is admitted.", NOTHING),
    "AwaitingNodes": Meaning(
        ("reserved",),
        "Its quota is reserved and the gang waits for nodes; the message counts why each refuses.",
        "Free or add nodes, or change what the pods ask of them.",
    ),
    "WouldBeAdmitted": Meaning(
        ("admitted",), "It would be resumed, if this Muster did not only observe.", "Run with --act."
    ),
    "Admitted": Meaning(("admitted",), "It was admitted and is being resumed.", NOTHING),
    "Starting": Meaning(
        ("admitted",),
        "It is resumed and does not run yet.",
        "If nothing exists of it: look whether its operator runs.",
    ),
    "Running": Meaning(("running",), "It runs, charged at its queue.", NOTHING),
    "Adopted": Meaning(
        ("admitted", "running"),
        "It runs without an admission: it ran when first seen, or was started around the queue.",
        "If that should not be: apply the admission policies in deploy/policies.",
    ),
    "SuspendedOutside": Meaning(
        ("leaving",),
        "Somebody else suspended it after its admission; charged until nothing of it is left.",
        "Nothing; it is queued again.",
    ),
    "Finished": Meaning(("finished",), "It has ended and holds no quota.", NOTHING),
    "FinishedStillCharged": Meaning(
        ("finished",),
        "It has ended, and what is left of it still counts.",
        "Shorten ttlSecondsAfterFinished, or delete what is left.",
    ),
    "DeletedStillCharged": Meaning(
        ("gone",), "It was deleted, and pods of it still exist.", "Look at finalizers and at pods that do not end."
    ),
    "Gone": Meaning(("gone",), "It was deleted and holds no quota.", NOTHING),
}
