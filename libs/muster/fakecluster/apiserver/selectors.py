"""Label and field selectors: the texts of ``labelSelector`` and ``fieldSelector`` as predicates on objects.

Called by lists and watches. A text that cannot be read is refused with 400, as is a field that the resource does not
let select by.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from muster.fakecluster.apiserver.status import Obj, bad_request

Match = Callable[[Obj], bool]

_WORD = r"([^\s=!(),]+)"
_EXISTS = re.compile(rf"(!?)\s*{_WORD}")
_EQUALS = re.compile(rf"{_WORD}\s*(==|=|!=)\s*([^\s=!(),]*)")
_AMONG = re.compile(rf"{_WORD}\s+(in|notin)\s*\(([^()]*)\)")  # codespell:ignore notin
_FIELD = re.compile(r"([^=!]+)(==|=|!=)([^=]*)")
_COMMA = re.compile(r",(?![^(]*\))")
"""A comma outside parentheses."""


def parse_selectors(query: Mapping[str, str], fields: frozenset[str]) -> Match | None:
    """The predicate of a request's selectors; None when it has none. ``fields``: what may be selected by."""
    labels, wanted = query.get("labelSelector", ""), query.get("fieldSelector", "")
    parts: list[Match] = []
    if labels:
        parts.append(_label_selector(labels))
    if wanted:
        parts.append(_field_selector(wanted, fields))
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else lambda obj: all(part(obj) for part in parts)


def _label_selector(text: str) -> Match:
    requirements = [_requirement(part.strip(), text) for part in _COMMA.split(text)]

    def matches(obj: Obj) -> bool:
        labels: dict[str, str] = obj["metadata"].get("labels") or {}
        return all(requirement(labels) for requirement in requirements)

    return matches


def _requirement(part: str, text: str) -> Callable[[dict[str, str]], bool]:
    if match := _EXISTS.fullmatch(part):
        absent, key = bool(match[1]), match[2]
        return lambda labels: (key in labels) is not absent
    if match := _EQUALS.fullmatch(part):
        key, value, equal = match[1], match[3], match[2] != "!="
        return lambda labels: (labels.get(key) == value) is equal
    if match := _AMONG.fullmatch(part):
        key, among = match[1], match[2] == "in"
        values = frozenset(value.strip() for value in match[3].split(","))
        return lambda labels: (labels.get(key) in values) is among
    raise bad_request(f"unable to parse requirement {part!r} of label selector {text!r}")


def _field_selector(text: str, fields: frozenset[str]) -> Match:
    wanted: list[tuple[list[str], bool, str]] = []
    for part in text.split(","):
        match = _FIELD.fullmatch(part)
        if match is None:
            raise bad_request(f"invalid selector: {text!r}; can't understand {part!r}")
        path, operator, value = match.groups()
        if path not in fields:
            raise bad_request(f"field label not supported: {path}")
        wanted.append((path.split("."), operator != "!=", value))

    def matches(obj: Obj) -> bool:
        return all((_field(obj, path) == value) is positive for path, positive, value in wanted)

    return matches


def _field(value: Any, path: list[str]) -> str:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return "" if value is None else str(value)
