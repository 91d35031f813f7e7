"""The OpenAPI document of the gateway, made of the table of questions. ``python -m muster_tools.openapi``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

import muster
from muster.serving import shapes, supposed, tales
from muster.serving.answering import AT, ROUTES, Question
from muster.serving.streaming import News
from muster_tools.attributes import attribute_docs, summary

FILE = Path("proto-schemas/gateway.yaml")
REF = "#/components/schemas/{name}"


def document() -> dict[str, Any]:
    """The whole document."""
    types: list[type[msgspec.Struct]] = list(
        dict.fromkeys([*(route.shape for route in ROUTES), *_bodies(), shapes.Problem, News])
    )
    refs, components = msgspec.json.schema_components(types, ref_template=REF)
    named = {type_.__name__: type_ for type_ in _all(types)}
    for name, schema in components.items():
        _describe(schema, named[name])
    schema_of = dict(zip(types, refs, strict=True))
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema_of)
    paths["/api/v1/stream"] = {"get": _stream(schema_of[News])}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Muster gateway",
            "version": muster.__version__,
            "description": (
                "The read model of a cell, as of now or of any moment of its log, within what the viewer may see: jobs "
                "of the namespaces whose pods they may list."
            ),
        },
        "security": [{"token": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _bodies() -> list[type[msgspec.Struct]]:
    return [route.body for route in ROUTES if route.body is not None]


def _all(types: list[type[msgspec.Struct]]) -> list[type[msgspec.Struct]]:
    there = (vars(shapes) | vars(supposed) | vars(tales)).values()
    structs = [value for value in there if isinstance(value, type) and issubclass(value, msgspec.Struct)]
    return [*structs, *types]


def _describe(schema: dict[str, Any], cls: type) -> None:
    schema["description"] = summary(cls)
    for name, text in attribute_docs(cls).items():
        if name in schema.get("properties", {}):
            schema["properties"][name]["description"] = text


def _operation(route: Question, schema_of: dict[Any, Any]) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    parameters += [
        {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
        for name, text in {"at": AT, **route.query}.items()
    ]
    made: dict[str, Any] = {
        "summary": route.says,
        "parameters": parameters,
        "responses": _answers(schema_of[route.shape]),
    }
    if route.body is not None:
        content = {"application/json": {"schema": schema_of[route.body]}}
        made["requestBody"] = {"required": True, "content": content}
    return made


def _answers(schema: Any) -> dict[str, Any]:
    problem = {"application/json": {"schema": {"$ref": REF.format(name="Problem")}}}
    return {
        "200": {"description": "The answer.", "content": {"application/json": {"schema": schema}}},
        "400": {"description": "The question cannot be understood.", "content": problem},
        "401": {"description": "Sign in with a token of the cluster.", "content": problem},
        "403": {"description": "A namespace is named whose pods you may not list.", "content": problem},
        "404": {"description": "There is no such thing, or none that you may see.", "content": problem},
        "503": {"description": "The gateway cannot answer now.", "content": problem},
    }


def _stream(schema: Any) -> dict[str, Any]:
    header = {
        "name": "Last-Event-ID",
        "in": "header",
        "description": "GENERATION-SEQUENCE of the last message: what happened after it is sent again.",
        "schema": {"type": "string"},
    }
    answers = _answers({"type": "string", "description": "Server-sent events `news`; their data is a News."})
    answers["200"]["content"] = {"text/event-stream": answers["200"]["content"]["application/json"]}
    return {"summary": "What happens, as it happens.", "parameters": [header], "responses": answers, "x-data": schema}


def text() -> str:
    notice = "# Written by `make schemas`: change shapes, supposed, tales and answering of muster/serving.\n"
    return notice + yaml.safe_dump(document(), sort_keys=False, width=110, allow_unicode=True)


if __name__ == "__main__":
    FILE.write_text(text())
