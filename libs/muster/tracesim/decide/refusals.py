"""Refusals of a state file by its shape: object, field, the value found, and the values allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from muster.tracesim.decide.values import shown

WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text; put it into quotes",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "nothing",
}
"""msgspec's word for a type -> what to write."""
STEP = re.compile(r"\.([\w-]+)|\[(\d+|\.\.\.)\]")


def refusal(err: msgspec.ValidationError, body: Any, kind: Any, origin: str) -> str:
    """One sentence about a value that ``msgspec.convert(body, kind)`` refused; ``origin``: where the body is in the
    file.
    """
    message, _, path = str(err).partition(" - at `$")
    at, value, named, expected = _followed(path.rstrip("`"), body, kind)
    where = f"{origin}{at}".strip(".") + (f" {named!r}" if named else "")
    where = where or "the document"
    if unknown := re.search(r"unknown field `(.*)`", message):
        fields = ", ".join(_fields(expected))
        return f"{where}: {unknown[1]!r} is unknown; known are {fields}"
    if missing := re.search(r"missing required field `(.+)`", message):
        return f"{where}: {missing[1]} is missing; write it"
    if allowed := [str(literal) for literal in _literals(expected)]:
        return f"{where} is {shown(value)}; write one of {', '.join(allowed)}"
    if types := re.match(r"Expected `(.+?)`", message):
        words = [WORDS.get(type_name, type_name) for type_name in types[1].split(" | ") if type_name != "null"]
        return f"{where} is {shown(value)}; write {' or '.join(words)}"
    return f"{where} is {shown(value)}: {message[:1].lower()}{message[1:]}"


def _followed(path: str, value: Any, kind: Any) -> tuple[str, Any, str, Any]:
    """(the path with the names of keys, the value at the end, the name of the last named object, its type)."""
    at, named = "", ""
    for field, index in STEP.findall(path):
        kind = _inner(kind, field)
        if index == "...":
            key = next((key for key, item in value.items() if not isinstance(item, str)), "")
            at, value = f"{at}[{key}]", value.get(key)
        elif index:
            at, value = f"{at}[{index}]", next(islice(value, int(index), None))
        else:
            at, value = f"{at}.{field}", value.get(field)
        if isinstance(value, Mapping) and isinstance(value.get("name"), str):
            at, named = f"{at} {value['name']!r}", ""
    return at, value, named, kind


def _inner(kind: Any, field: str) -> Any:
    """The type of a field, or of the entries of a collection."""
    for alternative in _alternatives(kind):
        if field and isinstance(alternative, type) and issubclass(alternative, msgspec.Struct):
            return get_type_hints(alternative).get(field, Any)
        if not field and get_origin(alternative) in (tuple, list, dict):
            return [inner for inner in get_args(alternative) if inner is not Ellipsis][-1]
    return Any


def _alternatives(kind: Any) -> tuple[Any, ...]:
    if get_origin(kind) is Union or type(kind).__name__ == "UnionType":
        return get_args(kind)
    return (kind,)


def _fields(kind: Any) -> list[str]:
    return [name for alternative in _alternatives(kind) for name in getattr(alternative, "__struct_fields__", ())]


def _literals(kind: Any) -> list[Any]:
    return [
        value
        for alternative in _alternatives(kind)
        if get_origin(alternative) is Literal
        for value in get_args(alternative)
    ]
