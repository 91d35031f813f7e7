"""How much is in a state: every table of it by its path, with how many entries it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec import Struct


def tables(value: Any) -> Counter[str]:
    """{path of a table: entries}; the tables inside the entries of one are counted together."""
    found: Counter[str] = Counter()
    _count(value, "", found)
    return found


def _count(value: Any, path: str, found: Counter[str]) -> None:
    if isinstance(value, Struct):
        for name in value.__struct_fields__:
            _count(getattr(value, name), f"{path}.{name}", found)
    elif isinstance(value, Mapping):
        found[path] += len(value)
        for each in value.values():
            _count(each, f"{path}[]", found)
    elif isinstance(value, list | tuple | set | frozenset):
        found[path] += len(value)
        for each in value:
            _count(each, f"{path}[]", found)
    elif hasattr(value, "__dict__"):
        for name, each in vars(value).items():
            _count(each, f"{path}.{name}", found)
