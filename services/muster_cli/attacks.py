"""Attempts of one user to pass by the queue, as dry runs: the server judges each attempt, and stores nothing.

``muster doctor --attack --as USER`` makes the attempts, also on one existing job of each kind in the namespace.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from muster.core.workloads.registry import KINDS
from muster.model import api
from muster.model.api import ApiResource
from muster.model.language import say
from muster.model.text import counted
from muster.ports import ApiStatusError, ApiTransport
from muster_cli.findings import Finding
from muster_cli.policychecks import APPLY, CONTROLLERS, MANAGED
from muster_cli.rolechecks import SYSTEM

Obj = dict[str, Any]
Verdict = Literal["guarded", "no_right", "passed", "untried"]
MERGE = "application/merge-patch+json"
NAME = "muster-attack"
JOBS = KINDS["Job"].resource
LEAF_LABEL = "quota.scheduling.alibabacloud.com/name"
BIG = {"requests": {"cpu": "64"}, "limits": {"cpu": "64"}}


class Attempt(Struct, frozen=True):
    """One request. ``rests``: JSON pointer of the suspend field; an answer with a true value there is no start."""

    what: str
    method: str
    path: str
    body: Obj = field(default_factory=dict)
    rests: str = ""


def attempts(namespace: str, leaf: str, there: Mapping[str, Obj]) -> Iterator[Attempt]:
    """``leaf``: another team's, empty when there is none. ``there``: {kind: an object of it in the namespace}."""
    made: list[tuple[str, Obj, Obj, str]] = [
        (say("a Job that runs at once"), {"suspend": False}, {}, "/spec/suspend"),
        (say("a Job with the marks of an admission"), {}, {"annotations": {"muster.dev/intent": "1-1-1"}}, ""),
        (say("a Job with a priority of its own"), {}, {"annotations": {"muster.dev/priority": "2000000000"}}, ""),
        (say("a Job in a pod template with a node"), {"nodeName": NAME}, {}, ""),
    ]
    if leaf:
        made.append((say("a Job in quota {leaf}", leaf=leaf), {}, {"labels": {LEAF_LABEL: leaf}}, ""))
    for title, spec, meta, rests in made:
        yield Attempt(say("create {object}", object=title), "POST", JOBS.path(namespace), _job(spec, meta), rests)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": NAME, "uid": NAME, "controller": True}
    pods: list[tuple[str, Obj, Obj]] = [
        (say("a Pod of no job"), {}, {}),
        (say("a Pod on a node of its choice"), {"nodeName": NAME, "schedulerName": "muster"}, {}),
        (say("a Pod that a Job is said to control"), {}, {"ownerReferences": [owner]}),
        (say("a Pod that passes for an executor of Spark"), {}, {"labels": {"spark-role": "executor"}}),
    ]
    if leaf:
        pods.append(
            (say("a Pod in quota {leaf}", leaf=leaf), {"schedulerName": "muster"}, {"labels": {LEAF_LABEL: leaf}})
        )
    for title, spec, meta in pods:
        yield Attempt(say("create {object}", object=title), "POST", api.PODS.path(namespace), _pod(spec, meta))
    bound = {"metadata": {"name": NAME}, "target": {"apiVersion": "v1", "kind": "Node", "name": NAME}}
    yield Attempt(say("bind a Pod"), "POST", ApiResource("", "v1", "bindings", "Binding").path(namespace), bound)
    label: Obj = {"metadata": {"labels": {MANAGED: None}}}
    yield Attempt(say("take the guard off the namespace"), "PATCH", api.NAMESPACES.path(name=namespace), label)
    trusted = {"data": {f"{JOBS.plural}.{JOBS.group}": "system:anonymous"}}
    yield Attempt(say("name controllers"), "PATCH", api.CONFIG_MAPS.path(SYSTEM, CONTROLLERS), trusted)
    for kind, objects in there.items():
        yield from _on(kind, objects)


def _on(kind: str, body: Obj) -> Iterator[Attempt]:
    """Attempts on an existing job: start a waiting job, enlarge a running job, declare a job finished."""
    resource, row = KINDS[kind].resource, KINDS[kind]
    meta = body["metadata"]
    path, it = resource.path(meta["namespace"], meta["name"]), f"{kind} {meta['name']}"
    if _at(body, row.suspend_path):
        start: Any = False
        for key in reversed(row.suspend_path[1:].split("/")):
            start = {key: start}
        yield Attempt(f"start {it}", "PATCH", path, start, row.suspend_path)
    else:
        spec = copy.deepcopy(body["spec"])
        if _enlarged(spec):
            yield Attempt(say("enlarge {it}, which runs", it=it), "PATCH", path, {"spec": spec})
    granted = {"metadata": {"annotations": {"muster.dev/granted": f"{NAME}=99"}}}
    yield Attempt(say("write a grant on {it}", it=it), "PATCH", path, granted)
    yield Attempt(say("write the status of {it}", it=it), "PATCH", f"{path}/status", {"status": {NAME: "x"}})


def _job(spec: Obj, meta: Obj) -> Obj:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    pod |= {key: value for key, value in spec.items() if key == "nodeName"}
    body = {"suspend": spec.get("suspend", True), "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": f"{NAME}-", **meta}, "spec": body}


def _pod(spec: Obj, meta: Obj) -> Obj:
    body = {"containers": [{"name": "main", "image": "none"}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": f"{NAME}-", **meta}, "spec": body}


def _enlarged(value: Any) -> int:
    """Have each container below ask for more; how many there are."""
    if isinstance(value, list):
        return sum(map(_enlarged, value))
    if not isinstance(value, dict):
        return 0
    containers = [container for container in value.get("containers") or () if isinstance(container, dict)]
    for container in containers:
        container["resources"] = BIG
    return len(containers) + sum(map(_enlarged, value.values()))


def _at(value: Any, pointer: str) -> Any:
    for key in pointer[1:].split("/"):
        value = value.get(key) if isinstance(value, dict) else None
    return value


async def judged(transport: ApiTransport, attempt: Attempt) -> tuple[Verdict, str]:
    """Make one attempt as a dry run; returns the verdict, and the server's message.

    Raises ApiUnreachableError, and ApiStatusError where the caller may not impersonate the user.
    """
    answer = await transport.request(
        attempt.method,
        attempt.path,
        query={"dryRun": "All"},
        body=msgspec.json.encode(attempt.body),
        content_type=MERGE if attempt.method == "PATCH" else "application/json",
    )
    review = msgspec.json.decode(answer.body)
    if answer.ok:
        return (
            ("guarded", say("it is made suspended")) if attempt.rests and _at(review, attempt.rests) else ("passed", "")
        )
    message = str(review.get("message", ""))
    if "cannot impersonate" in message:
        raise ApiStatusError(answer.status, message, None)
    if answer.status == 403:
        return ("guarded", message) if "ValidatingAdmissionPolicy 'muster-" in message else ("no_right", message)
    return "untried", f"{answer.status} {message}"


async def attack_findings(transport: ApiTransport, namespace: str, leaf: str, user: str) -> list[Finding]:
    """The attempts of a user that succeed: each is a problem, unless the user is named as one that starts jobs.

    Raises ApiUnreachableError.
    """
    there: dict[str, Obj] = {}
    for kind, row in KINDS.items():
        answer = await transport.request("GET", row.resource.path(namespace), query={"limit": "1"})
        for item in (msgspec.json.decode(answer.body).get("items") or []) if answer.ok else []:
            there[kind] = item
    counts: dict[Verdict, int] = {"guarded": 0, "no_right": 0, "passed": 0, "untried": 0}
    findings = []
    for attempt in attempts(namespace, leaf, there):
        verdict, words = await judged(transport, attempt)
        counts[verdict] += 1
        if verdict == "passed":
            detail = say(
                "{user} may {what} in namespace {namespace}", user=user, what=attempt.what, namespace=namespace
            )
            findings.append(
                Finding(
                    "bad",
                    say("attack"),
                    detail,
                    say("{apply}; `muster doctor` names the accounts that may start jobs", apply=APPLY),
                )
            )
        elif verdict == "untried":
            findings.append(
                Finding("note", say("attack"), say("{what}: not judged: {words}", what=attempt.what, words=words[:200]))
            )
    tried = counts["guarded"] + counts["no_right"] + counts["passed"]
    detail = say(
        "{attempts} of {user} in namespace {namespace}: {guarded} refused by the guard",
        attempts=counted(tried, "attempt"),
        user=user,
        namespace=namespace,
        guarded=counts["guarded"],
    )
    detail += say(
        ", {no_right} for want of a right, {passed} let through", no_right=counts["no_right"], passed=counts["passed"]
    )
    return [Finding("note" if counts["passed"] else "ok", say("attack"), detail), *findings]
