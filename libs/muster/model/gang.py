"""A gang by its PodGroup object."""

from __future__ import annotations

from msgspec import Struct, field

from muster.model.keys import Ref

NATIVE = "PodGroup.scheduling.k8s.io"
"""The kind of the PodGroups of Kubernetes itself."""


class Verdict(Struct, frozen=True, gc=False, omit_defaults=True):
    """Whether kube-scheduler has places for a gang, in its own words."""

    scheduled: bool
    reason: str = ""
    message: str = ""
    since: int = 0
    """Since when, in ms; 0 where it does not say."""


class PodGroup(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A PodGroup of any of the API groups, as far as it makes a gang."""

    ref: Ref
    """Its kind is qualified by the API group (``PodGroup.scheduling.x-k8s.io``): there are three of that name."""
    rv: int
    created: int = 0
    minimum: int = 0
    timeout_s: int = 0
    annotations: dict[str, str] = field(default_factory=dict)
    """Only those that say something about the gang."""
    made: bool = False
    """We made it, for pods whose labels say what it says."""
    shown: str = ""
    """Digest of the status it shows, to tell whether it is up to date."""
    alone: bool = False
    """Its pods start one by one: it makes no gang."""
    owner_uid: str = ""
    """Uid of the object that controls it."""
    attempt: int = 0
    """Of the job that owns it: the one that we made it for; 0 for a PodGroup of another client."""
    verdict: Verdict | None = None
    """What kube-scheduler said last; only of those of Kubernetes itself."""

    @property
    def native(self) -> bool:
        """Whether the PodGroup is of Kubernetes itself."""
        return self.ref.kind == NATIVE
