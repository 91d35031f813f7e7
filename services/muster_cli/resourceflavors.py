"""Kueue's ResourceFlavor objects as flavors of a quota tree: from a file, or from a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from muster.core.objects.meta import FLAVORS
from muster.core.quota.trees.rules import RuleError, read_flavors
from muster.kube.discovery import served
from muster.kube.objects import decode_status
from muster.model import api
from muster.model.language import listed, say
from muster.model.quota import Flavor
from muster.ports import ApiStatusError, ApiTransport
from muster.told.wording import problems
from muster_cli.exits import FAILED, USAGE, VIOLATED, CliError
from muster_cli.findings import Finding
from muster_cli.manifests import read_manifests
from muster_cli.textfiles import file_text

KIND = "ResourceFlavor"
_GROUP = api.RESOURCE_FLAVORS[0].group
_FIELDS = ("nodeLabels", "nodeTaints", "tolerations")
"""Of the spec: what a flavor of a tree has too."""


def in_file(path: Path) -> Sequence[Mapping[str, Any]]:
    """The ResourceFlavor objects of a YAML file, in order. Raises CliError when the file has none."""
    text = file_text(path)
    bodies = [
        manifest.body
        for manifest in read_manifests(text, str(path))
        if manifest.kind == KIND and manifest.api_version.partition("/")[0] == _GROUP
    ]
    if not bodies:
        raise CliError(say("{path} holds no {kind} of {group}", path=path, kind=KIND, group=_GROUP), USAGE)
    return bodies


async def in_cluster(transport: ApiTransport) -> Sequence[Mapping[str, Any]]:
    """The ResourceFlavor objects of a cluster, by name, in the newest version that is served; none without Kueue.

    Raises ApiStatusError, ApiUnreachableError.
    """
    for resource in api.RESOURCE_FLAVORS:
        if not await served(transport, resource):
            continue
        query, bodies = {"limit": "500"}, list[Mapping[str, Any]]()
        while (answer := await transport.request("GET", resource.path(), query=query)).ok:
            page = msgspec.json.decode(answer.body)
            bodies += page["items"]
            query["continue"] = page["metadata"].get("continue") or ""
            if not query["continue"]:
                return sorted(bodies, key=lambda body: str(body["metadata"]["name"]))
        raise ApiStatusError(answer.status, decode_status(answer.body).message)
    return []


def flavors_of(bodies: Iterable[Mapping[str, Any]]) -> tuple[Flavor, ...]:
    """The flavors of objects, in the order of the objects. Raises CliError for objects that a tree would refuse."""
    try:
        return read_flavors(json.dumps([_written(body) for body in bodies], default=str))
    except RuleError as err:
        text = say("no value for {key}: {problem}", key=FLAVORS, problem=problems.line(err.problem))
        raise CliError(text, VIOLATED) from err


def _written(body: Mapping[str, Any]) -> dict[str, Any]:
    """An object as an entry of the annotation."""
    spec = body.get("spec") or {}
    if not isinstance(spec, dict):
        raise CliError(say("spec of {kind} {name} is no object", kind=KIND, name=body["metadata"]["name"]), FAILED)
    return {"name": str(body["metadata"].get("name", ""))} | {name: spec[name] for name in _FIELDS if spec.get(name)}


async def flavor_findings(transport: ApiTransport, flavors: Sequence[Flavor], edit: str) -> list[Finding]:
    """The flavors of a tree that differ from the cluster's ResourceFlavor of the same name. ``edit``: the way out."""
    if not flavors:
        return []
    try:
        bodies = {str(body["metadata"]["name"]): body for body in await in_cluster(transport)}
    except ApiStatusError as err:
        detail = say("they cannot be compared with the objects of kind {kind}: {err}", kind=KIND, err=err)
        return [Finding("note", say("flavors"), detail)]
    return [*_differing(flavors, bodies, edit)]


def _differing(flavors: Sequence[Flavor], bodies: Mapping[str, Mapping[str, Any]], edit: str) -> Iterator[Finding]:
    fix = say("{edit}; `muster quota flavors` prints the flavors of the cluster", edit=edit)
    for flavor in flavors:
        if flavor.name not in bodies:
            continue
        title = say("flavor {name}", name=flavor.name)
        try:
            (other,) = flavors_of([bodies[flavor.name]])
        except CliError as err:
            yield Finding("note", title, str(err))
            continue
        pairs = zip(_FIELDS, _parts(flavor), _parts(other), strict=True)
        if names := [name for name, ours, theirs in pairs if ours != theirs]:
            detail = say("{names} differ from {kind} {name}", names=listed(names), kind=KIND, name=flavor.name)
            yield Finding("note", title, detail, fix)


def _parts(flavor: Flavor) -> tuple[object, object, object]:
    """What both have, in the order of ``_FIELDS``; the order of a list says nothing."""
    return flavor.labels, frozenset(flavor.taints), frozenset(flavor.tolerations)
