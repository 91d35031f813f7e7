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


@bug(2, "muster.core.workloads.kinds.job")
def _old_condition(job: Any) -> None:
    """Suspended=True proves that the pods are gone, however old it is."""
    read = job._life

    def life(suspended: bool, status: Any, *rest: Any) -> Any:
        found = read(suspended, status, *rest)
        old = job.is_true(status.conditions, "Suspended") and not (status.active or status.terminating)
        return job.replace(found, settled=old) if suspended else found

    job._life = life
