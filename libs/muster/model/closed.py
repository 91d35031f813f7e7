"""Tables over closed sets of texts: a type checker does not see whether a table is total, so each table is checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args


class IncompleteTableError(Exception):
    """A table has no row for a value of its set, or a row for something else; the message names the file to touch."""


def total(table: Mapping[Any, Any], kind: Any, file: str) -> None:
    """Raise IncompleteTableError unless the table has one row for each value of ``kind``, a Literal or another table.

    ``file``: where the table is.
    """
    values = [*kind] if isinstance(kind, Mapping) else _values(kind)
    missing = [value for value in values if value not in table]
    unknown = [str(key) for key in table if key not in values]
    if missing:
        raise IncompleteTableError(f"{file} has no row for {', '.join(missing)}: add one there")
    if unknown:
        raise IncompleteTableError(f"{file} has a row for {', '.join(unknown)}, which is no value of its set")


def _values(kind: Any) -> list[str]:
    """The texts of a Literal, and of Literals inside it."""
    values: list[str] = []
    for arg in get_args(kind):
        values += [arg] if isinstance(arg, str) else _values(arg)
    return values
