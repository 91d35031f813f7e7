"""The public contract for other systems: one JSON object per message, version 1.

Written apart from the events of the log on purpose: events of the log may change with a rule set, public events only
grow. Quantities are Kubernetes texts, times RFC 3339. The schema of each event, samples and changes are in
``proto-schemas/``.
"""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct, field

from muster.events.base import tag_of


class PublicWorkload(Struct, frozen=True, gc=False):
    """The workload of an event."""

    kind: str
    namespace: str
    name: str
    uid: str


class PublicPosition(Struct, frozen=True, gc=False):
    """The position of the decision in the log: ask ``muster why`` or ``muster replay`` about this position."""

    generation: int
    sequence: int
    index: int


def public_tag_of(class_name: str) -> str:
    """``PublicWorkloadQueued`` -> ``workload_queued``."""
    return tag_of(class_name.removeprefix("Public"))


class PublicEvent(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="type", tag=public_tag_of):
    """The fields of every public event."""

    cell: str
    at: str
    """Log time, RFC 3339."""
    position: PublicPosition


class PublicWorkloadEvent(PublicEvent, frozen=True, kw_only=True):
    """The fields of every public event about a workload."""

    workload: PublicWorkload
    priority: int | None = None
    """The priority in the queue; left out for a workload never queued."""
    owner: str = ""
    """The user or team in the workload's label or annotation muster.dev/owner."""
    labels: dict[str, str] = field(default_factory=dict)
    """The labels of the workload that queueing knows."""


class PublicWorkloadQueued(PublicWorkloadEvent, frozen=True, kw_only=True):
    """The workload entered its queue. ``attempt`` counts the entries."""

    attempt: int
    queue: str
    request: dict[str, str]
    priority: int = 0
    queued_at: str = ""
    """RFC 3339: the wait is counted from here."""


class PublicWorkloadDequeued(PublicWorkloadEvent, frozen=True, kw_only=True):
    """The workload left its queue without an admission."""

    attempt: int
    queue: str
    reason: str
    request: dict[str, str] = field(default_factory=dict)
    waited_ms: int | None = None


class PublicWorkloadRefused(PublicWorkloadEvent, frozen=True, kw_only=True):
    """The workload asks to be queued and cannot be; ``message`` says what to do."""

    reason: str
    message: str


class PublicWorkloadDenied(PublicWorkloadEvent, frozen=True, kw_only=True):
    """The workload was tried and does not fit now; all workloads with this request in the queue wait for the same."""

    attempt: int
    queue: str
    reason: str
    quota: str
    resource: str
    requested: str
    used: str
    limit: str
    message: str
    request: dict[str, str] = field(default_factory=dict)
    waited_ms: int | None = None
    held: str = ""
    """The amount held there for claimants, beside the used amount,"""
    claimant: str = ""
    """and namespace/name of the first claimant."""
    kept: str = ""
    """The amount kept there for the guarantees of other queues, beside the used amount."""
    promised_by: str = ""
    """The promised start, kept in 9 of 10 cases; left out without a promise."""


class PublicWorkloadAdmitted(PublicWorkloadEvent, frozen=True, kw_only=True):
    """Quota is reserved and the workload is being started."""

    attempt: int
    queue: str
    request: dict[str, str] = field(default_factory=dict)
    waited_ms: int | None = None
    """The time from the queueing to the admission, ms."""
    nodes: list[str] = field(default_factory=list)
    """The nodes of the pods, at most 32; left out where Muster does not place the pods."""
    borrowed: dict[str, str] = field(default_factory=dict)
    """The part of the request that the queue uses beyond its guarantee: other queues may claim this part back."""
    promised_by: str = ""
    """The promised start, kept in 9 of 10 cases; left out without a promise."""


class PublicWorkloadAdopted(PublicWorkloadEvent, frozen=True, kw_only=True):
    """The workload runs without an admission, and is charged."""

    attempt: int
    queue: str
    request: dict[str, str]
    reason: str


class PublicWorkloadRecharged(PublicWorkloadEvent, frozen=True, kw_only=True):
    """The running part of the workload has grown beyond the grant, or shrunk again: the charge from here on."""

    attempt: int
    queue: str
    request: dict[str, str]
    beyond_grant: dict[str, str]
    """The part of ``request`` beyond the grant; empty without such a part."""


class PublicWorkloadResumed(PublicWorkloadEvent, frozen=True, kw_only=True):
    """The API server has a patch that lets the workload run."""

    attempt: int
    queue: str = ""
    request: dict[str, str] = field(default_factory=dict)
    waited_ms: int | None = None


class PublicWorkloadNotResumed(PublicWorkloadEvent, frozen=True, kw_only=True):
    """The API server refused the patch that lets the workload run."""

    attempt: int
    reason: str
    message: str
    queue: str = ""
    request: dict[str, str] = field(default_factory=dict)
    waited_ms: int | None = None


class PublicWorkloadReclaimed(PublicWorkloadEvent, frozen=True, kw_only=True):
    """The workload comes before running jobs: these are suspended, or release workers, and their quota is held."""

    attempt: int
    queue: str
    quota: str
    resource: str
    victims: list[PublicWorkload]
    request: dict[str, str] = field(default_factory=dict)
    waited_ms: int | None = None
    reason: str = ""
    """``guarantee``: its queue is owed it; ``priority``: the victims have a lower one in its own queue;
    ``service``: they have had more GPU time."""


EvictedFor = Literal["reclaimed", "preempted", "moved", "running_timeout", "stale_gang", "overuse"]
"""Why a workload was evicted."""


class PublicWorkloadEvicted(PublicWorkloadEvent, frozen=True, kw_only=True):
    """The API server has a patch that suspends the workload again: to release quota, or after a start that took too
    long.
    """

    attempt: int
    queue: str = ""
    request: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    """``reclaimed``, ``preempted``, ``moved``, ``running_timeout``, ``stale_gang`` or ``overuse``."""
    claimant: str = ""
    """namespace/name of the job for which the workload is evicted; empty for none."""
    ran_ms: int | None = None
    """ms since the start of the workload; left out for a workload that did not run."""


class PublicWorkloadStarted(PublicWorkloadEvent, frozen=True, kw_only=True):
    """The admitted workload runs, by its own status."""

    queue: str = ""
    request: dict[str, str] = field(default_factory=dict)
    started_ms: int | None = None
    """ms from the admission of the workload to its start; None for a workload that ran before its admission."""
    nodes: list[str] = field(default_factory=list)
    """The nodes of the workload's pods, at most 32."""


class PublicWorkloadHeldUp(PublicWorkloadEvent, frozen=True, kw_only=True):
    """A pod of the admitted workload does not run, or has failed, for a cause that no other pod of the workload had."""

    attempt: int
    cause: str
    """``Unschedulable``, ``ImagePullBackOff``, ``CrashLoopBackOff``, ``OOMKilled``, ``Evicted`` ... a closed set."""
    pod: str
    message: str
    queue: str = ""
    request: dict[str, str] = field(default_factory=dict)
    node: str = ""
    """The node of the pod; left out for a pod without a node."""


class PublicWorkloadClaimOpened(PublicWorkloadEvent, frozen=True, kw_only=True):
    """Later work has passed the workload too often: quota released by others is held for the workload."""

    attempt: int
    queue: str
    quota: str
    """The highest quota of the path at which released quota is held."""
    request: dict[str, str]
    waited_ms: int | None = None
    promised_by: str = ""
    """When enough quota is free, by the declared run times of running jobs; left out for too few of these."""


class PublicWorkloadClaimEnded(PublicWorkloadEvent, frozen=True, kw_only=True):
    """Nothing is held for the workload any more, and the workload was not admitted."""

    reason: str
    queue: str = ""


class PublicWorkloadAlarmRaised(PublicWorkloadEvent, frozen=True, kw_only=True):
    """A fault of the workload's Ray cluster has lasted too long; ``message`` says what to do."""

    attempt: int
    reason: str
    message: str
    cluster: str
    since: str


class PublicWorkloadAlarmCleared(PublicWorkloadEvent, frozen=True, kw_only=True):
    """The fault of the workload's Ray cluster is over."""

    attempt: int
    cluster: str


class PublicWorkloadSuspended(PublicWorkloadEvent, frozen=True, kw_only=True):
    """Another client suspended the workload after its admission."""

    attempt: int
    queue: str = ""
    request: dict[str, str] = field(default_factory=dict)
    ran_ms: int | None = None
    """ms since the start of the workload; left out for a workload that did not run."""


class PublicWorkloadFinished(PublicWorkloadEvent, frozen=True, kw_only=True):
    """The workload has ended: succeeded, failed or invalid."""

    outcome: str
    queue: str = ""
    request: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    """The end in the words of the workload's kind."""
    ran_ms: int | None = None
    """ms since the start of the workload; left out for a workload that did not run."""
    cause: str = ""
    """The cause of failed pods, as in ``workload_held_up``; left out for a workload that did not fail."""


class PublicWorkloadReleased(PublicWorkloadEvent, frozen=True, kw_only=True):
    """The quota of the workload is free again."""

    attempt: int
    queue: str
    request: dict[str, str]
    reason: str


class PublicQuotaTreeAccepted(PublicEvent, frozen=True, kw_only=True):
    """A quota tree without a violation: this tree is in force from this event on."""

    namespace: str
    name: str
    nodes: list[str] = field(default_factory=list)
    """Full paths."""


class PublicQuotaTreeRejected(PublicEvent, frozen=True, kw_only=True):
    """A quota tree breaks rules and changes nothing."""

    namespace: str
    name: str
    violations: list[str] = field(default_factory=list)


class PublicQuotaTreeRemoved(PublicEvent, frozen=True, kw_only=True):
    """The quota tree in force was deleted."""

    namespace: str
    name: str


AnyPublicEvent = (
    PublicWorkloadQueued
    | PublicWorkloadDequeued
    | PublicWorkloadRefused
    | PublicWorkloadDenied
    | PublicWorkloadAdmitted
    | PublicWorkloadAdopted
    | PublicWorkloadRecharged
    | PublicWorkloadResumed
    | PublicWorkloadNotResumed
    | PublicWorkloadReclaimed
    | PublicWorkloadEvicted
    | PublicWorkloadStarted
    | PublicWorkloadHeldUp
    | PublicWorkloadClaimOpened
    | PublicWorkloadClaimEnded
    | PublicWorkloadAlarmRaised
    | PublicWorkloadAlarmCleared
    | PublicWorkloadSuspended
    | PublicWorkloadFinished
    | PublicWorkloadReleased
    | PublicQuotaTreeAccepted
    | PublicQuotaTreeRejected
    | PublicQuotaTreeRemoved
)

PUBLIC_TYPES: dict[str, type[PublicEvent]] = {cls.__struct_config__.tag: cls for cls in get_args(AnyPublicEvent)}
"""{type: struct} of everything outsiders may receive."""


def ce_type_of(cls: type[PublicEvent]) -> str:
    """CloudEvents type: ``workload_not_resumed`` -> ``dev.muster.workload.not-resumed.v1``."""
    tag = public_tag_of(cls.__name__)
    noun = "workload" if issubclass(cls, PublicWorkloadEvent) else tag.rpartition("_")[0]
    verb = tag.removeprefix(f"{noun}_")
    return f"dev.muster.{noun.replace('_', '-')}.{verb.replace('_', '-')}.v1"


def ce_type(event: PublicEvent) -> str:
    """The CloudEvents type of an event."""
    return ce_type_of(type(event))


def schema_address(tag: str) -> str:
    """The address of the schema of an event, its ``$id``."""
    return f"https://muster.dev/schemas/v1/{tag}.schema.json"


def ce_id(cell: str, position: PublicPosition) -> str:
    """CloudEvents id: the position, unique for ever; what outsiders de-duplicate by."""
    return f"{cell}-{position.generation}-{position.sequence}-{position.index}"


def parse_ce_id(text: str) -> PublicPosition | None:
    """The position an id names; None when it is none of ours."""
    parts = text.rsplit("-", 3)
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() for part in parts[1:]):
        return None
    return PublicPosition(*(int(part) for part in parts[1:]))
