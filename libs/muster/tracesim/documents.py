"""JSON with places: every value of a document knows its line and column, for the error messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from muster.model.language import say
from muster.tracesim.model import TraceError
from muster.tracesim.textfile import text_of

_SPACE = " \t\r\n"
_WORDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}


class DocumentPlace:
    """A value in a document, and its place there."""

    def __init__(self, document: Document, value: Any, offset: int, path: str) -> None:
        self.document = document
        self.value = value
        self.offset = offset
        self.path = path

    def error(self, message: str) -> TraceError:
        """An error about this value, naming file, line and column."""
        text = self.document.text
        line = text.count("\n", 0, self.offset) + 1
        column = self.offset - (text.rfind("\n", 0, self.offset) + 1) + 1
        where = f" ({self.path})" if self.path else ""
        return TraceError(
            say(
                "{path} line {line}, column {column}{where}: {message}",
                path=self.document.path,
                line=line,
                column=column,
                where=where,
                message=message,
            )
        )

    def expect(self, *kinds: type) -> Any:
        """The value, if it is of one of these types."""
        value = self.value
        if isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)):
            return value
        words = list(dict.fromkeys(_WORDS[kind] for kind in kinds))
        raise self.error(f"must be {' or '.join(words)}, and is {_shown(value)}")

    def members(self, *, known: tuple[str, ...] = ()) -> dict[str, DocumentPlace]:
        """The members of an object, each with its place; if ``known`` is given, other members are an error."""
        self.expect(dict)
        places: dict[str, DocumentPlace] = {}
        keys: dict[str, DocumentPlace] = {}
        for key, key_at, at in self.document.entries(self.offset):
            path = f"{self.path}.{key}" if self.path else key
            keys[key] = DocumentPlace(self.document, key, key_at, path)
            places[key] = DocumentPlace(self.document, self.value[key], at, path)
        for key, place in keys.items():
            if known and key not in known:
                raise place.error(f"{key!r} is unknown here; known are {', '.join(known)}")
        return places

    def items(self) -> list[DocumentPlace]:
        """The elements of a list, each with its place."""
        self.expect(list)
        offsets = self.document.elements(self.offset)
        return [
            DocumentPlace(self.document, value, at, f"{self.path}[{index}]")
            for index, (value, at) in enumerate(zip(self.value, offsets, strict=True))
        ]


MAX_DEPTH = 200
"""Levels of a YAML or JSON file that people write; a reader of objects gives up, or breaks, at some thousands."""


NO_YAML = (yaml.YAMLError, ValueError)
"""What loading of a text raises that is none, or has a number of more digits than an integer may have."""


def flaw(err: Exception) -> str:
    """What is wrong with a text, on one line."""
    return " ".join(str(err).split()).partition("; use sys.")[0]


def too_deep(text: str) -> bool:
    """Whether a YAML text is nested deeper than people write. Raises yaml.YAMLError where it is no YAML."""
    depth = 0
    for event in yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return False


class Document:
    """A JSON file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = text_of(path)
        try:
            value = json.loads(self.text, object_pairs_hook=_unique)
        except json.JSONDecodeError as err:
            raise TraceError(
                say(
                    "{path} line {lineno}, column {colno}: is not JSON: {message}",
                    path=path,
                    lineno=err.lineno,
                    colno=err.colno,
                    message=err.msg.lower(),
                )
            ) from err
        except _TwiceError as err:
            raise TraceError(say("{path}: an object names {name!r} twice", path=path, name=err.args[0])) from err
        except RecursionError as err:
            raise TraceError(say("{path}: is nested too deeply", path=path)) from err
        except ValueError as err:  # Too many digits for an integer.
            raise TraceError(say("{path}: is not JSON: {err}", path=path, err=flaw(err))) from err
        self.root = DocumentPlace(self, value, self._skip(0), "")

    def entries(self, offset: int) -> list[tuple[str, int, int]]:
        """(key, offset of the key, offset of the value) of the object that begins at ``offset``."""
        triples: list[tuple[str, int, int]] = []
        at = self._skip(offset + 1)
        while self.text[at] != "}":
            key, end = _decoder.raw_decode(self.text, at)
            value_at = self._skip(self._skip(end) + 1)
            triples.append((key, at, value_at))
            at = self._after(value_at)
        return triples

    def elements(self, offset: int) -> list[int]:
        """Offsets of the elements of the list that begins at ``offset``."""
        lines: list[int] = []
        at = self._skip(offset + 1)
        while self.text[at] != "]":
            lines.append(at)
            at = self._after(at)
        return lines

    def _after(self, at: int) -> int:
        """Where the next member begins, or the end of the container."""
        _, end = _decoder.raw_decode(self.text, at)
        end = self._skip(end)
        return self._skip(end + 1) if self.text[end] == "," else end

    def _skip(self, at: int) -> int:
        while at < len(self.text) and self.text[at] in _SPACE:
            at += 1
        return at


class _TwiceError(Exception):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in fields:
            raise _TwiceError(key)
        fields[key] = value
    return fields


_decoder = json.JSONDecoder()


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:39] + "…"
