"""Reports of a reflector about itself, for metrics and readiness."""

from __future__ import annotations

from typing import Protocol


class WatchHooks(Protocol):
    """Called in the event loop: must not block and must not raise. ``resource`` is ``rayjobs.ray.io`` or ``pods``."""

    def restarted(self, resource: str, cause: str, detail: str) -> None:
        """A list or watch ended and will be tried again; ``cause`` is one of ``trouble.Cause``."""

    def heard(self, resource: str, at_s: float) -> None:
        """The server answered, or an event or bookmark arrived, at ``at_s`` of the reflector's clock."""

    def sized(self, resource: str, objects: int) -> None:
        """So many objects are held now."""

    def ready(self, resource: str, ready: bool, why: str) -> None:
        """Whether the reports are a complete picture, kept up to date; called on changes only.

        Starts as not ready. ``why`` is empty when ready.
        """


class NoWatchHooks:
    """Hooks that do nothing."""

    def restarted(self, resource: str, cause: str, detail: str) -> None: ...

    def heard(self, resource: str, at_s: float) -> None: ...

    def sized(self, resource: str, objects: int) -> None: ...

    def ready(self, resource: str, ready: bool, why: str) -> None: ...
