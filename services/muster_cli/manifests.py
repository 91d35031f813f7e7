"""Manifests in a YAML text: several documents, and lists of objects. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml
from msgspec import Struct

from muster.model.language import say
from muster.tracesim.documents import NO_YAML, flaw, too_deep
from muster_cli.exits import USAGE, CliError


class Manifest(Struct, frozen=True):
    """One object to be created."""

    api_version: str
    kind: str
    name: str
    """Empty when the server makes one up from generateName."""
    generate_name: str
    namespace: str
    body: dict[str, Any]

    def __str__(self) -> str:
        name = self.name or f"{self.generate_name}*"
        return f"{self.kind} {self.namespace}/{name}" if self.namespace else f"{self.kind} {name}"


def read_manifests(text: str, origin: str) -> list[Manifest]:
    """The objects of a text, in order. Raises CliError naming the document that is none."""
    try:
        if too_deep(text):
            raise CliError(say("{origin} is nested too deeply to be a manifest", origin=origin), USAGE)
        documents = list(yaml.safe_load_all(text))
    except NO_YAML as err:
        raise CliError(say("{origin} is not YAML: {err}", origin=origin, err=flaw(err)), USAGE) from err
    manifests = [
        _manifest(body, say("{origin}, document {number}", origin=origin, number=number))
        for number, document in enumerate(documents, start=1)
        if document is not None
        for body in _objects(document)
    ]
    if not manifests:
        raise CliError(say("{origin} holds no object", origin=origin), USAGE)
    return manifests


def _objects(document: Any) -> Iterator[Any]:
    """The document, or the items of a list."""
    if isinstance(document, dict) and str(document.get("kind", "")).endswith("List") and "items" in document:
        yield from document["items"] or ()
    else:
        yield document


def _manifest(body: Any, where: str) -> Manifest:
    if not isinstance(body, dict):
        raise CliError(say("{where} is no object but a {name}", where=where, name=type(body).__name__), USAGE)
    api_version, kind, meta = body.get("apiVersion"), body.get("kind"), body.get("metadata") or {}
    if not isinstance(api_version, str) or not isinstance(kind, str):
        raise CliError(say("{where} is no Kubernetes object: it has no apiVersion or no kind", where=where), USAGE)
    if not isinstance(meta, dict) or not (meta.get("name") or meta.get("generateName")):
        raise CliError(
            say("{where} ({kind}) has neither metadata.name nor metadata.generateName", where=where, kind=kind), USAGE
        )
    return Manifest(
        api_version,
        kind,
        str(meta.get("name") or ""),
        str(meta.get("generateName") or ""),
        str(meta.get("namespace") or ""),
        body,
    )
