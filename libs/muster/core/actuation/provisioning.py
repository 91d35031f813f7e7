"""Asking for nodes: the ProvisioningRequest of a decision, its PodTemplates, and the meaning of the server's answers.

Names come from the decision, so that a repeated write creates nothing twice. The pods, or the job, own the objects:
even without Muster, the requests end with the last pod that could use the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct

from muster.core.actuation.orders import (
    Asking,
    Effect,
    RetryLater,
    applied,
    failed,
    message_of,
    refused,
    rv_of,
    said_by,
)
from muster.core.autoscaling.bridgestate import templates_of
from muster.core.objects.meta import INTENT
from muster.core.objects.nodepools import REQUESTED
from muster.core.workloads.registry import KINDS
from muster.events.growing import NodesRequested, NodesRequestWithdrawn
from muster.model import api
from muster.model.api import ApiResource
from muster.model.keys import Ref
from muster.model.placing import GPU, PodRules, PodTerm, Requirement
from muster.model.problem import problem
from muster.model.resources import texts
from muster.model.workload import SCHEDULERS, PodSet

Body = dict[str, Any]
IMAGE = "none"
"""Nothing of a template ever runs."""
NATIVE = ("cpu", "memory", "ephemeral-storage")
"""Resources with a request that needs no limit."""


class Call(Struct, frozen=True):
    """One request to the API server."""

    method: Literal["POST", "DELETE"]
    resource: ApiResource
    name: str
    body: bytes | None = None

    def path(self, namespace: str) -> str:
        return self.resource.path(namespace, "" if self.method == "POST" else self.name)


def calls(order: Asking) -> Iterator[Call]:
    """The calls for a decision, in order."""
    decision = order.decision
    if isinstance(decision, NodesRequestWithdrawn):
        yield Call("DELETE", api.PROVISIONING_REQUESTS, decision.name)
        for name in decision.templates:
            yield Call("DELETE", api.POD_TEMPLATES, name)
        return
    for name, pods in zip(templates_of(decision), decision.pod_sets, strict=True):
        template = {"template": {"metadata": {"labels": dict(pods.rules.labels)}, "spec": pod_spec(pods)}}
        yield _create(order, api.POD_TEMPLATES, name, template)
    pod_sets = [
        {"podTemplateRef": {"name": name}, "count": pods.count}
        for name, pods in zip(templates_of(decision), decision.pod_sets, strict=True)
    ]
    spec = {"provisioningClassName": decision.provisioning, "podSets": pod_sets}
    yield _create(order, api.PROVISIONING_REQUESTS, decision.name, {"spec": spec})


def _create(order: Asking, resource: ApiResource, name: str, content: Body) -> Call:
    decision = order.decision
    assert isinstance(decision, NodesRequested)
    meta = {
        "name": name,
        "namespace": decision.namespace,
        "labels": {REQUESTED: "true"},
        "annotations": {INTENT: str(order.intent)},
        "ownerReferences": [_owner(ref) for ref in decision.owners if ref.kind in KINDS or ref.kind == api.PODS.kind],
    }
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **content}
    return Call("POST", resource, name, msgspec.json.encode(body, order="deterministic"))


def _owner(ref: Ref) -> Body:
    resource = KINDS[ref.kind].resource if ref.kind in KINDS else api.PODS
    return {"apiVersion": resource.api_version, "kind": ref.kind, "name": ref.name, "uid": ref.uid}


def read_call(order: Asking, call: Call, status: int, body: bytes) -> Effect | RetryLater | None:
    """The outcome of the whole order after an answer; None: continue with the next call."""
    last = call.resource == api.PROVISIONING_REQUESTS and call.method == "POST"
    if 200 <= status < 300:
        return applied(order, rv_of(body)) if last else None
    if call.method == "DELETE":
        return None if status in (404, 410) else refused(order, status, body)
    if status == 409 and "already exists" in message_of(body):
        return applied(order) if last else None  # We made it before: no other client uses such names.
    if status == 404 and last:
        served = {"resource": str(call.resource), "version": call.resource.api_version}
        return failed(order, "refused", problem("", "not_served", said_by(body), **served))
    return refused(order, status, body)


# --- a pod of a set, as far as nodes are chosen for it ------------------------------------------------------------


def pod_spec(pods: PodSet) -> Body:
    """A pod spec with the same requests, for the same places."""
    takes = pods.request if pods.takes is None else pods.takes
    rules, amounts = pods.rules, texts({name: amount for name, amount in takes.items() if amount and name != "pods"})
    if rules.share or rules.gpu_memory:
        amounts[GPU] = str(rules.devices)  # Provisioners know no shares: a whole one is never too little.
    resources: Body = {"requests": amounts}
    limits = {name: amount for name, amount in amounts.items() if name not in NATIVE}
    if limits:
        resources["limits"] = limits
    container: Body = {"name": "main", "image": IMAGE, "resources": resources}
    if rules.ports:
        container["ports"] = [
            {
                "containerPort": port.port,
                "hostPort": port.port,
                "protocol": port.protocol,
                **({"hostIP": port.ip} if port.ip else {}),
            }
            for port in rules.ports
        ]
    spec: Body = {"schedulerName": SCHEDULERS[0], "containers": [container]}
    if rules.node_labels:
        spec["nodeSelector"] = dict(rules.node_labels)
    if rules.tolerations:
        spec["tolerations"] = [
            {name: text for name, text in msgspec.to_builtins(toleration).items() if text}
            for toleration in rules.tolerations
        ]
    affinity = _affinity(rules)
    if affinity:
        spec["affinity"] = affinity
    if rules.spread:
        spec["topologySpreadConstraints"] = [
            {
                "topologyKey": spread.key,
                "maxSkew": spread.skew,
                "whenUnsatisfiable": "DoNotSchedule",
                **({"labelSelector": _selector(spread.selector)} if spread.selector is not None else {}),
                **({"minDomains": spread.domains} if spread.domains > 1 else {}),
                "nodeAffinityPolicy": "Honor" if spread.honor_affinity else "Ignore",
                "nodeTaintsPolicy": "Honor" if spread.honor_taints else "Ignore",
            }
            for spread in rules.spread
        ]
    return spec


def _affinity(rules: PodRules) -> Body:
    required, affinity = "requiredDuringSchedulingIgnoredDuringExecution", Body()
    if rules.nodes is not None:
        terms = [
            {
                **({"matchExpressions": _expressions(term.labels)} if term.labels else {}),
                **({"matchFields": _expressions(term.names)} if term.names else {}),
            }
            for term in rules.nodes
        ]
        if terms:
            affinity["nodeAffinity"] = {required: {"nodeSelectorTerms": terms}}
    if rules.together:
        affinity["podAffinity"] = {required: [_term(term) for term in rules.together]}
    if rules.apart:
        affinity["podAntiAffinity"] = {required: [_term(term) for term in rules.apart]}
    return affinity


def _term(term: PodTerm) -> Body:
    written: Body = {"topologyKey": term.key}
    if term.selector is not None:
        written["labelSelector"] = _selector(term.selector)
    if term.everywhere:
        written["namespaceSelector"] = {}
    elif term.namespaces:
        written["namespaces"] = list(term.namespaces)
    return written


def _selector(selector: tuple[Requirement, ...]) -> Body:
    return {"matchExpressions": _expressions(selector)} if selector else {}


def _expressions(requirements: tuple[Requirement, ...]) -> list[Body]:
    return [
        {
            "key": requirement.key,
            "operator": requirement.operator,
            **({"values": list(requirement.values)} if requirement.values else {}),
        }
        for requirement in requirements
    ]
