"""The docstrings of a struct's fields in the source: the text below each field, for generated pages and schemas.

:func:`settings` is the table of the settings: of the page docs/reference/configuration.md, and of the chart.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing
from functools import cache
from typing import Any, NamedTuple

import msgspec

from muster.runtime.config import Config, bounds


def attribute_docs(cls: type) -> dict[str, str]:
    """{field: the text below the field}, inherited fields first; fields without a text are absent."""
    attributes: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("muster"):
            attributes |= _own(base)
    return attributes


@cache
def _own(cls: type) -> dict[str, str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    definition = tree.body[0]
    assert isinstance(definition, ast.ClassDef)
    attributes: dict[str, str] = {}
    for node, below in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = _text(below)
            if text:
                attributes[node.target.id] = text
    return attributes


def _text(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""


def summary(cls: type) -> str:
    """The first paragraph of a class's docstring, in one line."""
    return " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].split())


class Setting(NamedTuple):
    """A setting of the services."""

    name: str
    """In lower case, without MUSTER_."""
    default: Any
    type: Any
    text: str

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of a value that a service takes."""
        if typing.get_origin(self.type) is typing.Literal:
            return {"enum": [choice for choice in typing.get_args(self.type) if self._taken(choice)]}
        least, most = bounds(self.type)
        ends = {"minimum": least, "maximum": most}
        names = {bool: "boolean", int: "integer", str: "string"}
        return {
            "type": names[getattr(self.type, "__origin__", self.type)],
            **{name: end for name, end in ends.items() if end is not None},
        }

    def _taken(self, choice: object) -> bool:
        """Whether the services start with a choice, beside defaults."""
        try:
            Config(**{self.name: choice})  # type: ignore[arg-type]
        except ValueError:
            return False
        return True


def settings() -> list[Setting]:
    """Every setting, in the order of the struct."""
    told = attribute_docs(Config)
    return [
        Setting(item.name, item.default, item.type, told.get(item.name, "")) for item in msgspec.structs.fields(Config)
    ]
