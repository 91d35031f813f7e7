"""Kinds of jobs that a platform team defines, and kinds that people suspend and no definition reads."""

from __future__ import annotations

import msgspec

from muster.core.workloads.registry import KINDS, OWN
from muster.kube.suspendable import suspendable
from muster.model import api
from muster.model.language import listed, say
from muster.model.text import counted
from muster.ports import ApiStatusError, ApiTransport
from muster.runtime import kinds
from muster_cli.findings import Finding
from muster_cli.rolechecks import SYSTEM

MOST = 500
"""Objects of a kind that are looked at."""


async def learn(transport: ApiTransport) -> None:
    """Know the kinds of the cluster's ConfigMap, in this process. Raises ApiUnreachableError."""
    answer = await transport.request("GET", api.CONFIG_MAPS.path(SYSTEM, kinds.NAME))
    if answer.ok:
        kinds.take(sorted((msgspec.json.decode(answer.body).get("data") or {}).items()))


async def kind_findings(transport: ApiTransport) -> list[Finding]:
    """What is defined, what is not understood, and what waits unread. Raises ApiUnreachableError."""
    findings = [Finding("bad", say("kinds defined"), sentence, "muster kinds lint FILE") for sentence in kinds.refused]
    more = [kind for kind in KINDS if kind not in OWN]
    if more:
        findings.append(
            Finding(
                "ok",
                say("kinds defined"),
                say("{more} by ConfigMap {system}/{name}", more=listed(more), system=SYSTEM, name=kinds.NAME),
            )
        )
    try:
        unread = await suspendable(transport, [row.resource for row in KINDS.values()])
        for resource, at in unread:
            waiting = await _suspended(transport, resource, at)
            detail = say("{resource} have {at}, and Muster does not read them", resource=resource, at=at)
            detail += (
                say(": {waiting} suspended, for ever unless another controller starts them", waiting=waiting)
                if waiting
                else ""
            )
            fix = say("define the kind ({page}), or run its pods with schedulerName: muster", page=kinds.PAGE)
            findings.append(Finding("bad" if waiting else "note", say("kind {kind}", kind=resource.kind), detail, fix))
    except ApiStatusError as err:
        findings.append(
            Finding("note", say("kinds"), say("which served kinds can be suspended cannot be read: {err}", err=err))
        )
    return findings


async def _suspended(transport: ApiTransport, resource: api.ApiResource, at: str) -> str:
    """``3 objects are``; empty for none, and where they may not be listed."""
    answer = await transport.request("GET", f"{resource.path()}?limit={MOST}")
    if not answer.ok:
        return ""
    items = msgspec.json.decode(answer.body).get("items") or []
    number = sum(_at(item, at) is True for item in items)
    return f"{counted(number, 'object')} {'is' if number == 1 else 'are'}" if number else ""


def _at(value: object, path: str) -> object:
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value
