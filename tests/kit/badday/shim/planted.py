"""Puts bugs back into a service of a bad day, by number: each changes one function once its module is imported."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Change = Callable[[Any], None]
BUGS: dict[int, dict[str, Change]] = {}
"""{bug: {module: what is done to it}}"""


def bug(number: int, module: str) -> Callable[[Change], Change]:
    def known(change: Change) -> Change:
        BUGS.setdefault(number, {})[module] = change
        return change

    return known


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that are to be changed, as everybody does, and changes them when they are loaded."""

    def __init__(self, changes: dict[str, Change]) -> None:
        self._changes = changes

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        change = self._changes.pop(name, None)
        if change is None:
            return None
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def loaded(module: ModuleType) -> None:
            load(module)
            change(module)

        spec.loader.exec_module = loaded  # type: ignore[method-assign]
        return spec


def plant(number: int) -> None:
    sys.meta_path.insert(0, Finder(dict(BUGS.get(number, {}))))


# --- 2: a condition that is older than the last write releases quota --------------------------------------------------


@bug(2, "muster.core.actuation.intents")
def _suspended_at_once(intents: Any) -> None:
    """An order to suspend does not wait until the controller has acted on the resume."""
    intents.is_held = lambda _state, _order: False


@bug(2, "muster.core.quota.endings")
def _any_rest_is_proof(endings: Any) -> None:
    def note_acted(_state: Any, entry: Any) -> None:
        entry.acted = True

    endings.note_acted = note_acted


# --- 3: nobody outside NATS knows how far the log was -----------------------------------------------------------------


@bug(3, "muster.runtime.witness")
def _never_lacking(witness: Any) -> None:
    async def lacking(*_: Any) -> str:
        return ""

    witness.lacking = lacking


# --- 4: nobody looks at the copies of the log -------------------------------------------------------------------------


@bug(4, "muster.runtime.logkeeping.copies")
def _no_copy_is_damaged(copies: Any) -> None:
    copies._of_copies = lambda *_: iter(())


@bug(4, "muster.runtime.runners.guarding")
def _nothing_is_read_along(guarding: Any) -> None:
    async def compare(*_: Any) -> None:
        return None

    guarding.Guard._compare = compare


# --- 6: another cluster is taken for its own --------------------------------------------------------------------------


@bug(6, "muster.runtime.pairing")
def _the_last_cluster_counts(pairing: Any) -> None:
    record = pairing.record_cluster

    async def another(*_: Any) -> str:
        return ""

    async def record_cluster(*given: Any, **_: Any) -> None:
        await record(*given, again=True)

    pairing.another, pairing.record_cluster = another, record_cluster


# --- 7: what came back is proposed for ever ---------------------------------------------------------------------------


@bug(7, "muster.core.quota.ledger.books")
def _attempts_end_with_the_object(books: Any) -> None:
    """Though it is still in a queue."""

    def forget(self: Any, uid: str, seen: Any) -> bool:
        if uid in seen.versions or uid in self.charges:
            return False
        self.attempts.pop(uid, None)
        return True

    books.Books.forget = forget


@bug(7, "muster.core.queueing.circles")
def _circles_go_on(circles: Any) -> None:
    circles.Circles.answered = lambda *_: False


# --- 8: a Job that runs for the rest is read at its full size ---------------------------------------------------------


@bug(8, "muster.core.workloads.kinds.job")
def _done_counts_while_suspended(job: Any) -> None:
    needs = job._needs

    def old(spec: Any, status: Any, ref: Any) -> Any:
        from msgspec.structs import replace

        return needs(spec, status if spec.suspend else replace(status, succeeded=None), ref)

    job._needs = old
