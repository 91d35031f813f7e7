"""Whether the admission policies of ``deploy/policies`` are there, bound, and refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from muster.core.workloads.registry import KINDS
from muster.kube.discovery import ServerVersion
from muster.model import api
from muster.model.api import ApiResource
from muster.model.language import listed, say
from muster.model.text import counted
from muster.ports import ApiTransport
from muster_cli.findings import Finding, Grade
from muster_cli.rolechecks import SYSTEM

ADMISSION = "admissionregistration.k8s.io"
MANAGED = "muster.dev/managed"
APPLY = "kubectl apply -f deploy/policies"
SHOWN = 5
CONTROLLERS = "muster-controllers"
"""The ConfigMap that names the accounts that the policies trust."""
STARTERS = "starters"
"""Its key with the accounts that start jobs without an admission, beside Muster's own and the group."""
GLASS = "muster:break-glass"
OWN = tuple(f"system:serviceaccount:{SYSTEM}:{name}" for name in ("muster", "muster-actuator"))
"""The accounts of Muster that start jobs."""


class AdmissionPolicy(Struct, frozen=True):
    """A policy of ``deploy/policies``: kind, binding of the same name, and the first server version."""

    name: str
    resource: ApiResource
    binding: ApiResource
    since: ServerVersion
    guards: bool = True
    """The policy keeps jobs in their queue; else the policy only saves people some fields."""
    steers: bool = False
    """Gives pods of gangs our name."""
    limits: bool = False
    """Keeps Muster's own actuator from other uses of its rights."""


def _policy(
    name: str, sort: str, since: ServerVersion, *, guards: bool = True, steers: bool = False, limits: bool = False
) -> AdmissionPolicy:
    kind = f"{sort}AdmissionPolicy"
    resource = ApiResource(ADMISSION, "v1", f"{sort.lower()}admissionpolicies", kind, namespaced=False)
    binding = ApiResource(ADMISSION, "v1", f"{sort.lower()}admissionpolicybindings", f"{kind}Binding", namespaced=False)
    return AdmissionPolicy(name, resource, binding, since, guards, steers, limits)


POLICIES = (
    _policy("muster-jobs", "Validating", ServerVersion(1, 30)),
    _policy("muster-jobs-scaled", "Validating", ServerVersion(1, 30)),
    _policy("muster-cronjobs", "Validating", ServerVersion(1, 30)),
    _policy("muster-pods", "Validating", ServerVersion(1, 30)),
    _policy("muster-pod-priorities", "Validating", ServerVersion(1, 30)),
    _policy("muster-pods-resized", "Validating", ServerVersion(1, 30)),
    _policy("muster-pods-end", "Validating", ServerVersion(1, 30)),
    _policy("muster-ray-resized", "Validating", ServerVersion(1, 30)),
    _policy("muster-queueunits", "Validating", ServerVersion(1, 30)),
    _policy("muster-namespaces", "Validating", ServerVersion(1, 30)),
    _policy("muster-rights", "Validating", ServerVersion(1, 30)),
    _policy("muster-status", "Validating", ServerVersion(1, 30)),
    _policy("muster-pods-bound", "Validating", ServerVersion(1, 30)),
    _policy("muster-tokens", "Validating", ServerVersion(1, 30)),
    _policy("muster-claims", "Validating", ServerVersion(1, 30)),
    _policy("muster-own-jobs", "Validating", ServerVersion(1, 30), guards=False, limits=True),
    _policy("muster-own-pods", "Validating", ServerVersion(1, 30), guards=False, limits=True),
    _policy("muster-own-objects", "Validating", ServerVersion(1, 30), guards=False, limits=True),
    _policy("muster-pod-deletions", "Validating", ServerVersion(1, 30), guards=False, limits=True),
    _policy("muster-templates", "Validating", ServerVersion(1, 30), guards=False),
    _policy("muster-jobs-suspended", "Mutating", ServerVersion(1, 36)),
    _policy("muster-rayjobs-shut-down", "Mutating", ServerVersion(1, 36)),
    _policy("muster-trainings-suspended", "Mutating", ServerVersion(1, 36)),
    _policy("muster-cronjobs-suspended", "Mutating", ServerVersion(1, 36)),
    _policy("muster-jobs-kept-running", "Mutating", ServerVersion(1, 36), guards=False),
    _policy("muster-trainings-kept-running", "Mutating", ServerVersion(1, 36), guards=False),
    _policy("muster-jobs-kept-running-by-tree", "Mutating", ServerVersion(1, 36), guards=False),
    _policy("muster-trainings-kept-running-by-tree", "Mutating", ServerVersion(1, 36), guards=False),
    _policy("muster-gang-pods-steered", "Mutating", ServerVersion(1, 36), guards=False, steers=True),
    _policy("muster-gang-pods-grouped", "Mutating", ServerVersion(1, 36), guards=False),
    _policy("muster-gpu-shares-told", "Mutating", ServerVersion(1, 36), guards=False),
)
"""The content of ``deploy/policies`` (a test keeps both equal)."""


async def policy_findings(transport: ApiTransport, version: ServerVersion, *, acting: bool) -> list[Finding]:
    """Whether queued jobs are guarded; without policies a bypass is noticed and charged, not stopped."""
    known = (version.major, version.minor)
    wanted = [policy for policy in POLICIES if known >= (policy.since.major, policy.since.minor)]
    if not wanted:
        detail = say("this server has none of ours: a bypass is noticed and charged, not stopped")
        return [Finding("note", say("policies"), detail), *_steered(wanted, [])]
    looked = [(policy, resource) for policy in wanted for resource in (policy.resource, policy.binding)]
    answers = await asyncio.gather(
        *(transport.request("GET", resource.path(name=policy.name)) for policy, resource in looked)
    )
    missing: dict[str, AdmissionPolicy] = {}
    unknown: list[str] = []
    weak: list[str] = []
    for (policy, resource), answer in zip(looked, answers, strict=True):
        name = f"{resource.kind} {policy.name}"
        if answer.status == 404:
            missing[name] = policy
        elif not answer.ok:
            unknown.append(f"{name} (HTTP {answer.status})")
        else:
            weak += [f"{name} {how}" for how in weakened(policy, resource, msgspec.json.decode(answer.body))]
    grade: Grade = "bad" if acting else "note"
    findings = []
    guards = [name for name, policy in missing.items() if policy.guards]
    if guards:
        detail = say("{guards} missing: any user may start a queued job without an admission", guards=listed(guards))
        findings.append(Finding(grade, say("policies"), detail, APPLY))
    limits = [name for name, policy in missing.items() if policy.limits]
    if limits:
        detail = say("{limits} missing: the credentials of Muster's actuator change anything", limits=listed(limits))
        findings.append(Finding(grade, say("policies"), detail, APPLY))
    others = [name for name, policy in missing.items() if not (policy.guards or policy.limits or policy.steers)]
    if others:
        detail = say(
            "{others} missing: users have to write themselves what these write for them", others=listed(others)
        )
        findings.append(Finding("note", say("policies"), detail, APPLY))
    if weak:
        more = say("; and {weak} more", weak=len(weak) - SHOWN) if len(weak) > SHOWN else ""
        findings.append(Finding(grade, say("policies"), say("; ").join(weak[:SHOWN]) + more, APPLY))
    if unknown:
        findings.append(
            Finding("note", say("policies"), say("cannot be looked at: {unknown}", unknown=listed(unknown)))
        )
    there = [policy.name for policy in wanted if policy not in missing.values()]
    findings = findings or [Finding("ok", say("policies"), listed(there))]
    findings += await _controllers(transport, acting=acting) if not guards else []
    return [*findings, *_steered(wanted, [name for name, policy in missing.items() if policy.steers])]


def weakened(policy: AdmissionPolicy, resource: ApiResource, body: dict[str, Any]) -> Iterator[str]:
    """How a policy or its binding does less than ours do."""
    spec, validates = body.get("spec") or {}, policy.resource.kind.startswith("Validating")
    if resource == policy.resource:
        if validates and spec.get("failurePolicy", "Fail") != "Fail":
            yield say(
                "has failurePolicy {failurepolicy}: what it cannot judge is let through",
                failurepolicy=spec["failurePolicy"],
            )
        if not spec.get("validations" if validates else "mutations"):
            yield say("has no rule")
        if (spec.get("matchConstraints") or {}).get("namespaceSelector"):
            yield say("holds in some namespaces only")
        warned = ((body.get("status") or {}).get("typeChecking") or {}).get("expressionWarnings") or ()
        if warned:
            yield say("has {expressions} that the server finds wrong", expressions=counted(len(warned), "expression"))
        return
    if spec.get("policyName") != policy.name:
        yield say("binds {policy}", policy=spec.get("policyName") or say("no policy"))
    if validates and (policy.guards or policy.limits) and "Deny" not in (spec.get("validationActions") or ()):
        yield say(
            "refuses nothing: validationActions {actions}",
            actions=listed(spec.get("validationActions") or ()) or say("is empty"),
        )
    selector = ((spec.get("matchResources") or {}).get("namespaceSelector") or {}).get("matchLabels") or {}
    if policy.guards and any(key != MANAGED or value != "true" for key, value in selector.items()):
        yield say(
            "holds only in namespaces with {labels}",
            labels=listed((f"{key}={value}" for key, value in sorted(selector.items()))),
        )
    param = spec.get("paramRef") or {}
    if param.get("name") and (param.get("name"), param.get("namespace")) != (CONTROLLERS, SYSTEM):
        yield say(
            "takes its accounts from ConfigMap {namespace}/{name}",
            namespace=param.get("namespace"),
            name=param.get("name"),
        )


async def _controllers(transport: ApiTransport, *, acting: bool) -> list[Finding]:
    """Whether the policies know the accounts that run the kinds: policies without accounts refuse every request."""
    answer = await transport.request("GET", api.CONFIG_MAPS.path(SYSTEM, CONTROLLERS))
    if answer.status == 404:
        detail = say(
            "ConfigMap {system}/{controllers} missing: the policies refuse every job and pod of managed namespaces",
            system=SYSTEM,
            controllers=CONTROLLERS,
        )
        return [
            Finding(
                "bad" if acting else "note", say("policies"), detail, "kubectl apply -f deploy/rbac/controllers.yaml"
            )
        ]
    if not answer.ok:
        return []
    data = msgspec.json.decode(answer.body).get("data") or {}
    resources = [f"{row.resource.plural}.{row.resource.group}" for row in KINDS.values()]
    unnamed = [resource for resource in resources if not data.get(resource, "").strip()]
    if not unnamed:
        return []
    named = say("ConfigMap {system}/{controllers} names no account", system=SYSTEM, controllers=CONTROLLERS)
    detail = say(
        "{named} for {unnamed}: what the operator makes of these is refused", named=named, unnamed=listed(unnamed)
    )
    return [Finding("note", say("policies"), detail, f"kubectl -n {SYSTEM} edit configmap {CONTROLLERS}")]


def _steered(wanted: Collection[AdmissionPolicy], missing: Collection[str]) -> list[Finding]:
    """Whether pods of gangs get Muster as their scheduler, where the pods name none."""
    detail = say("pods with the marks of a gang have to say schedulerName: muster themselves")
    if missing:
        return [
            Finding(
                "note",
                say("gang pods"),
                say("{missing} missing: {detail}", missing=listed(missing), detail=detail),
                APPLY,
            )
        ]
    if not any(policy.steers for policy in wanted):
        return [
            Finding("note", say("gang pods"), say("this server changes no objects by policy: {detail}", detail=detail))
        ]
    return []
