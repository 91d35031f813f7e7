"""Puts bugs back into a service of a bad day, by number: each changes one function once its module is imported."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

Change = Callable[[Any], Any]
"""From a function to the one that is put in its place."""
BUGS: dict[int, dict[str, dict[str, Change]]] = {}
"""{bug: {module: {function, or class.function: what is done to it}}}"""


def bug(number: int, module: str, name: str) -> Callable[[Change], Change]:
    def known(change: Change) -> Change:
        BUGS.setdefault(number, {}).setdefault(module, {})[name] = change
        return change

    return known


def find(module: ModuleType, name: str) -> tuple[Any, str, Any]:
    """What has the function, its own name there, and the function. Raises AttributeError where there is none."""
    *path, last = name.split(".")
    owner = reduce(getattr, path, module)
    return owner, last, getattr(owner, last)


def missing(number: int) -> list[str]:
    """What a bug would change and the code no longer has."""
    lacking: list[str] = []
    for module, changes in BUGS.get(number, {}).items():
        for name in changes:
            try:
                find(importlib.import_module(module), name)
            except (ImportError, AttributeError):
                lacking.append(f"{module}.{name}")
    return lacking


def unused(number: int, folder: Path) -> list[str]:
    """The modules of a bug that no service of the day has loaded, so that nothing was planted there."""
    return [module for module in BUGS.get(number, {}) if not (folder / f"planted-{module}").exists()]


class Finder(importlib.abc.MetaPathFinder):
    """Finds the modules that are to be changed, as everybody does, and changes them when they are loaded."""

    def __init__(self, changes: dict[str, dict[str, Change]]) -> None:
        self._changes = changes

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        changes = self._changes.pop(name, None)
        if changes is None:
            return None
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def loaded(module: ModuleType) -> None:
            load(module)
            for each, change in changes.items():
                owner, last, old = find(module, each)
                setattr(owner, last, change(old))
            (Path(os.environ["BADDAY_FOLDER"]) / f"planted-{name}").touch()

        spec.loader.exec_module = loaded  # type: ignore[method-assign]
        return spec


def plant(number: int) -> None:
    sys.meta_path.insert(0, Finder(dict(BUGS.get(number, {}))))


# --- 2: a condition that is older than the last write releases quota --------------------------------------------------


@bug(2, "muster.core.actuation.intents", "is_held")
def _suspended_at_once(_: Any) -> Any:
    """An order to suspend does not wait until the controller has acted on the resume."""
    return lambda _state, _order: False


@bug(2, "muster.core.quota.endings", "note_acted")
def _any_rest_is_proof(_: Any) -> Any:
    def note_acted(_state: Any, entry: Any) -> None:
        entry.acted = True

    return note_acted


# --- 3: nobody outside NATS knows how far the log was -----------------------------------------------------------------


@bug(3, "muster.runtime.witness", "lacking")
def _never_lacking(_: Any) -> Any:
    async def lacking(*_: Any) -> str:
        return ""

    return lacking


# --- 4: nobody looks at the copies of the log -------------------------------------------------------------------------


@bug(4, "muster.runtime.logkeeping.copies", "_of_copies")
def _no_copy_is_damaged(_: Any) -> Any:
    return lambda *_: iter(())


@bug(4, "muster.runtime.runners.guarding", "Guard._compare")
def _nothing_is_read_along(_: Any) -> Any:
    async def compare(*_: Any) -> None:
        return None

    return compare


# --- 6: another cluster is taken for its own --------------------------------------------------------------------------


@bug(6, "muster.runtime.pairing", "another")
def _no_cluster_is_another(_: Any) -> Any:
    async def another(*_: Any) -> str:
        return ""

    return another


@bug(6, "muster.runtime.pairing", "record_cluster")
def _the_last_cluster_counts(record: Any) -> Any:
    async def record_cluster(*given: Any, **_: Any) -> None:
        await record(*given, again=True)

    return record_cluster


# --- 7: what came back is proposed for ever ---------------------------------------------------------------------------


@bug(7, "muster.core.quota.ledger.books", "Books.forget")
def _attempts_end_with_the_object(_: Any) -> Any:
    """Though it is still in a queue."""

    def forget(self: Any, uid: str, seen: Any) -> bool:
        if uid in seen.versions or uid in self.charges:
            return False
        self.attempts.pop(uid, None)
        return True

    return forget


@bug(7, "muster.core.queueing.circles", "Circles.answered")
def _circles_go_on(_: Any) -> Any:
    return lambda *_: False


# --- 8: a Job that runs for the rest is read at its full size ---------------------------------------------------------


@bug(8, "muster.core.workloads.defined", "Reader._number")
def _done_counts_while_suspended(number: Any) -> Any:
    def old(self: Any, view: Any, entry: Any, pods: Any, *rest: Any) -> Any:
        from msgspec.structs import replace

        runs = pods.done and not view.get("spec.suspend")
        return number(self, view, entry, replace(pods, done="") if runs else pods, *rest)

    return old
