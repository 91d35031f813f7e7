"""What a PodGroup object says of a gang."""

from __future__ import annotations

from msgspec import Struct, field

from muster.model.keys import Ref


class PodGroup(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A PodGroup of either API group, as far as it makes a gang."""

    ref: Ref
    """Its kind is qualified by the API group (``PodGroup.scheduling.x-k8s.io``): there are two of that name."""
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
