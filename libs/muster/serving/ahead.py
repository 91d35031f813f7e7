"""Questions about the future of the queues: starts of jobs, effects of a change, the prospects of a new job.

Every question plays the queues forward, which takes a fifth of a second with 10,000 waiting jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from muster.core.promising.projection import Projected
from muster.model.workload import Workload
from muster.serving import supposed
from muster.serving.asking import ask
from muster.serving.forking import projected
from muster.serving.scope import Lens, Scope
from muster.serving.views import moment_of
from muster.serving.whatif import what_if
from muster.told.readmodel.readstate import ReadState


class Ahead:
    """Looks ahead from one state, or from a state that is folded on. Pure."""

    def __init__(
        self,
        state: Callable[[], ReadState],
        *,
        live: bool = True,
        part: Callable[[supposed.AskView], None] | None = None,
    ) -> None:
        """``part``: receives an answer that is not complete yet, for a reader that waits no longer."""
        self._state = state
        self._live = live
        self._part = part

    def foreseen(self, now: int) -> dict[str, Projected]:
        """When waiting jobs start, as of now."""
        state = self._state()
        return dict(projected(state, state.queues, now))

    def ask(self, scope: Scope, workload: Workload, now: int) -> supposed.AskView:
        """The prospects of a job that is not submitted yet."""
        state = self._state()
        moment = moment_of(state, now, live=self._live)
        return ask(state, Lens(scope, state), moment, workload, now, self._part)

    def what_if(self, scope: Scope, changes: Sequence[supposed.Change], job: str, now: int) -> supposed.WhatIf:
        """The effects of a change. Raises ChangeError."""
        state = self._state()
        moment = moment_of(state, now, live=self._live)
        return what_if(state, Lens(scope, state), moment, changes, now, job)
