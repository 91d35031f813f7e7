"""A queue of KAI Scheduler (scheduling.run.ai/v2) as written by the owner."""

from __future__ import annotations

from msgspec import Struct, field

from muster.model.keys import Ref


class KaiQueue(Struct, frozen=True, gc=False, omit_defaults=True):
    """Numbers are decimal texts in the units of the API (GPUs, thousandths of a CPU, 10^6 bytes), by resource name.

    ``-1`` is unlimited as a quota, and no limit as a limit. Empty dicts: the object has no ``resources`` at all.
    """

    ref: Ref
    rv: int
    created: int = 0
    parent: str = ""
    priority: int | None = None
    title: str = ""
    quota: dict[str, str] = field(default_factory=dict)
    limit: dict[str, str] = field(default_factory=dict)
    weight: dict[str, str] = field(default_factory=dict)
    preempt_min_runtime: str = ""
    reclaim_min_runtime: str = ""
    rules: dict[str, str] = field(default_factory=dict)
    """Annotations about past usage, without their prefix muster.dev/."""
    placement: str = ""
    """Annotation ``muster.dev/placement``: how the pods of its work are laid out on nodes."""
    shown: str = ""
    """Digest of the status it shows, to tell whether it is up to date."""

    @property
    def name(self) -> str:
        return self.ref.name
