"""Takes JSON apart by its brackets alone, at any depth.

The decoder gives up on values nested deeper than the interpreter's recursion limit, while the API server stores up to
ten times this depth. This slow path (some 80 times slower than decoding) lets ``objects`` save the neighbours of such
a value; only brackets and strings are checked.
"""

from __future__ import annotations

import re

import msgspec

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}:,]', re.DOTALL)
_OPEN = {b"{": b"}", b"[": b"]"}
_CLOSE = frozenset(_OPEN.values())


class NestingError(ValueError):
    """Brackets that do not match, or another kind of value than asked for."""


def object_members(data: bytes) -> dict[str, bytes]:
    """{name: raw value} of the object in ``data``; of a name that is there twice, the last."""
    members: dict[str, bytes] = {}
    for part in _split(data, b"{"):
        match = _TOKEN.match(part)
        if match is None or not match[0].startswith(b'"'):
            raise NestingError(f"no member name at {part[:40]!r}")
        value = part[match.end() :].lstrip()
        if not value.startswith(b":"):
            raise NestingError(f"no value at {part[:40]!r}")
        members[msgspec.json.decode(match[0], type=str)] = value[1:].strip()
    return members


def array_items(data: bytes) -> list[bytes]:
    """Raw items of the array in ``data``; none for ``null``."""
    return [] if data.strip() == b"null" else _split(data, b"[")


def _split(data: bytes, bracket: bytes) -> list[bytes]:
    """The text between the outer brackets of ``data``, cut at the commas of that level."""
    start = len(data) - len(data.lstrip())
    if data[start : start + 1] != bracket:
        raise NestingError(f"expected {bracket.decode()} at {data[start : start + 40]!r}")
    stack: list[bytes] = []
    parts: list[bytes] = []
    begin = start + 1
    for match in _TOKEN.finditer(data, start):
        token = match[0]
        if token in _OPEN:
            stack.append(_OPEN[token])
        elif token in _CLOSE:
            if not stack or stack.pop() != token:
                raise NestingError(f"unexpected {token.decode()} at byte {match.start()}")
            if not stack:
                if data[match.end() :].strip():
                    raise NestingError(f"more bytes after the value, at byte {match.end()}")
                last = data[begin : match.start()].strip()
                return [*parts, last] if last or parts else []
        elif token == b"," and len(stack) == 1:
            parts.append(data[begin : match.start()].strip())
            begin = match.end()
    raise NestingError(f"{len(stack)} brackets left open at the end")
