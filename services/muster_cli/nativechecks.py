"""The findings of ``muster doctor`` about gangs of Kubernetes itself: whether Muster reads such gangs and may use
them.
"""

from __future__ import annotations

from muster.core.actuation.patches import GROUPS
from muster.kube.discovery import can_i, served
from muster.model import api
from muster.model.language import listed, marked, say
from muster.ports import ApiTransport
from muster_cli.findings import Finding

SWITCH_ON = marked(
    "start the API server of Kubernetes 1.36 or later with --feature-gates=GenericWorkload=true and "
    "--runtime-config={api_version}=true"
)

OLDER = marked("; the Workloads of Kubernetes 1.35 (spec.workloadRef of a pod) are not read, 1.36 is needed")

POLICY = "muster-gang-pods-grouped"
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
VERBS = ("create", "delete", "get")


async def native_findings(
    transport: ApiTransport, *, placed: bool, acting: bool, policies: bool = True
) -> list[Finding]:
    """Whether the server has PodGroups of its own, and the version that Muster reads.

    ``placed``: kube-scheduler is to place the gangs of jobs (MUSTER_PLACEMENT=native). This takes PodGroups in the
    version
    that Muster writes, the right to make PodGroups, and the policy that makes pods name a PodGroup.
    """
    read = [resource for resource in api.NATIVE_POD_GROUPS if await served(transport, resource)]
    older = "" if read or not await served(transport, api.NATIVE_WORKLOADS_OF_1_35) else say(OLDER)
    if placed and GROUPS not in read:
        detail = say(
            "no PodGroups are served as {api_version}, and MUSTER_PLACEMENT=native resumes no job without",
            api_version=GROUPS.api_version,
        )
        fix = say(
            "{switch_on}, or set MUSTER_PLACEMENT to off, pack or spread",
            switch_on=say(SWITCH_ON, api_version=GROUPS.api_version),
        )
        return [Finding("bad", say("native placement"), detail + older, fix)]
    if not read:
        detail = say(
            "{group} has no PodGroups here: spec.schedulingGroup makes no gang; labels and annotations do",
            group=GROUPS.group,
        )
        return [
            Finding(
                "note",
                say("native gangs"),
                detail + older,
                say("to have them, {switch_on}", switch_on=say(SWITCH_ON, api_version=GROUPS.api_version)),
            )
        ]
    findings = [
        Finding("ok", say("native gangs"), say("PodGroups are read as {api_version}", api_version=read[0].api_version))
    ]
    if not placed:
        return findings
    if acting:
        refused = [verb for verb in VERBS if not (await can_i(transport, verb, GROUPS, "")).allowed]
        if refused:
            detail = say("we may not {refused} {groups} in all namespaces", refused=listed(refused), groups=GROUPS)
            findings.append(Finding("bad", say("native placement"), detail, say("apply deploy/rbac")))
    if policies and (await transport.request("GET", f"{POLICIES}/{POLICY}")).status == 404:
        detail = say(
            "policy {policy} missing: pods whose kind has no spec.schedulingGroup start one by one", policy=POLICY
        )
        findings.append(
            Finding("bad" if acting else "note", say("native placement"), detail, say("apply deploy/policies"))
        )
    return findings
