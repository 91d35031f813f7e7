"""The fenced patches: a workload is resumed or suspended with its PodGroup, and a Ray cluster is limited.

The native PodGroup of Kubernetes: an admitted job gets a PodGroup where kube-scheduler places the pods of the job. The
PodGroup exists before the job is resumed, is owned by the job and ends with the job. The spec of a PodGroup is
immutable, and its status shows the outcome of an earlier attempt: the PodGroup of an earlier attempt is replaced. The
intent in the PodGroup fences the PodGroup like every other write.

``maxReplicas`` of a Ray cluster: one fenced patch writes the grant, and keeps the owner's value as the ceiling. The
object is read first: the uid, the worker groups in order, the annotations of our last write, and, where a count is
lowered, whether ``replicas`` is still the value known to the decision. The patch then tests the resourceVersion of the
read. So a stale leader changes nothing, and neither does a decision overtaken by the autoscaler.

Resuming or suspending a workload: one patch, and the meaning of the answer. The fence reaches the API server: every
write tests the uid, the generation of the last read, and the annotation ``muster.dev/intent``, and sets this annotation
to the decision behind the write. A write by a stale leader, or for a spec edited meanwhile, changes nothing. The digest
``basis`` identifies the input of the decision: where only the generation has grown, because a controller wrote a
default, the patch is built again on the object as read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.core.actuation.intents import Known, known_of
from muster.core.actuation.orders import (
    Effect,
    Gating,
    Outstanding,
    RetryLater,
    absent,
    applied,
    failed,
    message_of,
    meta_of,
    refused,
    said,
    said_by,
)
from muster.core.objects.kaiqueue import POD_GROUP_NAME, pod_group_name
from muster.core.objects.meta import (
    ATTEMPT,
    CEILINGS,
    DEQUEUE_STAMPS,
    DEQUEUED_AT,
    ENQUEUE_STAMPS,
    GANG,
    GATE,
    GRANTED,
    INTENT,
    ON_FLAVORS,
    QUEUED_AT,
    SCHEDULING_GROUP,
    SUSPEND,
    Meta,
    UnreadableError,
    decode,
    first_stamp,
    go_time,
    rfc3339,
)
from muster.core.workloads import rayscaling
from muster.core.workloads.common import count
from muster.core.workloads.ray import RayClusterSpec, hosts_of, replicas_of
from muster.core.workloads.rayscaling import elastic_of
from muster.core.workloads.registry import KINDS, resource_of
from muster.core.workloads.steering import SCHEDULER
from muster.events.elastic import GateSet
from muster.model.api import NATIVE_POD_GROUPS
from muster.model.elastic import Counts, Elastic, counts_text
from muster.model.keys import Intent, Ref
from muster.model.placing import Toleration
from muster.model.problem import FieldProblem, problem
from muster.model.quota import FlavorNodes
from muster.model.workload import Switch, Template, Workload

# --- the PodGroup of a job --------------------------------------------------------------------------------------------


GROUPS = NATIVE_POD_GROUPS[-1]
"""The API version of the PodGroups that muster writes."""


def group_name(ref: Ref) -> str:
    """The name of the PodGroup of a job."""
    return pod_group_name(ref)


def groups(order: Outstanding, known: Known) -> bool:
    """Whether the pods of a job are to name a PodGroup: the pods name no scheduler and no other PodGroup.

    Pods of a started Job name the PodGroup for good; each attempt gets a new PodGroup under the same name.
    """
    own, templates = group_name(order.ref), [one for one in known.switch.templates if not one.elsewhere]
    ours = any(template.marked or template.named for template in templates)
    return bool(templates) and not ours and all(template.group in ("", own) for template in templates)


def group_for(order: Outstanding, known: Known) -> bytes:
    """The PodGroup of an admission."""
    resource, ref = resource_of(order.ref.kind, known.switch), order.ref
    owner: dict[str, Any] = {"apiVersion": resource.api_version, "kind": resource.kind, "name": ref.name}
    meta = {
        "name": group_name(ref),
        "namespace": ref.namespace,
        "annotations": {INTENT: str(order.intent), ATTEMPT: str(order.attempt)},
        "ownerReferences": [{**owner, "uid": ref.uid, "controller": True}],
    }
    spec = {"schedulingPolicy": {"gang": {"minCount": order.together}}}
    body = {"apiVersion": GROUPS.api_version, "kind": GROUPS.kind, "metadata": meta, "spec": spec}
    return msgspec.json.encode(body, order="deterministic")


def read_made(order: Outstanding, status: int, body: bytes) -> Effect | RetryLater | None:
    """The meaning of the answer to the creation of the PodGroup; None: the PodGroup exists."""
    if 200 <= status < 300:
        return None
    message = message_of(body)
    if status == 404 and message.startswith("namespaces "):
        return failed(order, "gone", said(message))
    if status == 404:
        version = GROUPS.api_version
        return failed(order, "refused", problem("", "pod_groups_not_served", resource=str(GROUPS), version=version))
    return refused(order, status, body)


def read_former(order: Outstanding, end: int, status: int, body: bytes) -> Effect | RetryLater | bytes | None:
    """None for the PodGroup of this admission, or the deletion options for the PodGroup of an earlier admission.

    ``end``: sequence up to which our own log is known. A PodGroup with the intent of a later decision has a foreign
    author.
    """
    if status == 404:
        return RetryLater("conflict", _leaving(order))
    if not 200 <= status < 300:
        return RetryLater("unavailable", said_by(body))
    try:
        meta = meta_of(body)
    except UnreadableError as err:
        return failed(order, "refused", problem("", "pod_group_unreadable", err.problem, group=group_name(order.ref)))
    named = f"{order.ref.namespace}/{meta.name}"
    if meta.controller.uid != order.ref.uid:
        return failed(order, "refused", problem("", "pod_group_not_ours", group=named, api=GROUPS.group))
    stored = Intent.parse(meta.annotations.get(INTENT, ""))
    if stored is not None and stored.generation > order.intent.generation:
        return failed(order, "refused", problem("", "pod_group_of_newer_log", group=named, api=GROUPS.group))
    if stored is not None and stored > order.intent and stored.seq <= end:
        return failed(order, "superseded", problem("", "pod_group_superseded", decision=str(stored)))
    if meta.deletion_timestamp:
        return RetryLater("conflict", _leaving(order))
    if stored == order.intent:
        return None
    preconditions = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    return msgspec.json.encode({"preconditions": preconditions}, order="deterministic")


def read_removed(order: Outstanding, status: int, body: bytes) -> Effect | RetryLater:
    """The meaning of the answer to the deletion of an earlier PodGroup: the new PodGroup follows the deletion."""
    if 200 <= status < 300 or status == 404:
        return RetryLater("conflict", _leaving(order))
    return refused(order, status, body)


def _leaving(order: Outstanding) -> FieldProblem:
    return problem("", "pod_group_leaving", group=group_name(order.ref))


# --- maxReplicas of a Ray cluster -------------------------------------------------------------------------------------


Op = dict[str, Any]

SCALED = {"RayJob": "/spec/rayClusterSpec", "RayService": "/spec/rayClusterConfig", "RayCluster": "/spec"}
"""{kind: path of the description of a Ray cluster}"""


def annotate(values: Mapping[str, str], *, annotated: bool) -> list[Op]:
    """Operations that set annotations; ``annotated``: the object has annotations."""
    if not annotated:
        return [{"op": "add", "path": "/metadata/annotations", "value": values}]
    return [{"op": "add", "path": pointer(key), "value": value} for key, value in values.items()]


def pointer(annotation: str, metadata: str = "/metadata") -> str:
    """JSON pointer of an annotation."""
    return f"{metadata}/annotations/{_step(annotation)}"


def _step(key: str) -> str:
    """A key as a step of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


class _Cluster(Struct, frozen=True):
    metadata: Meta
    spec: RayClusterSpec = RayClusterSpec()


def opening(elastic: Elastic) -> Counts:
    """``maxReplicas`` of a newly admitted cluster: the replicas at the start."""
    return {group.name: max(group.replicas, group.least) for group in elastic.groups}


def gate_notes(most: Counts, elastic: Elastic, intent: Intent) -> dict[str, str]:
    """The annotations that accompany ``maxReplicas``."""
    ceilings = {group.name: elastic.ceiling(group) for group in elastic.groups}
    return {GRANTED: counts_text(most), CEILINGS: counts_text(ceilings), GATE: str(intent)}


def gate_ops(most: Counts, elastic: Elastic, at: str, replicas: Mapping[str, int] | None = None) -> list[Op]:
    """Operations that write ``maxReplicas``, each after a test that the group has kept its index.

    ``replicas``: {worker group: replicas for the operator to make}.
    """
    ops: list[Op] = []
    for index, group in enumerate(elastic.groups):
        path = f"{at}/workerGroupSpecs/{index}"
        ops.append({"op": "test", "path": f"{path}/groupName", "value": group.name})
        # Written even where the value is known to be equal: of a waiting cluster only the ceiling is known, not the
        # field.
        ops.append({"op": "add", "path": f"{path}/maxReplicas", "value": most[group.name]})
        if replicas and group.name in replicas:
            ops.append({"op": "add", "path": f"{path}/replicas", "value": replicas[group.name]})
    return ops


def patch_gate(
    order: Gating, status: int, body: bytes, workers: Mapping[str, list[str]] | None = None
) -> bytes | Effect | RetryLater:
    """The patch on the object as just read; or the outcome of the order, where the object shows the outcome.

    ``workers``: {worker group: names of pods that go}.
    """
    none = absent(order, status, body)
    if none is not None:
        return none
    decision = order.decision
    if decision.suspend is not None or decision.stay:
        return _patch_part(order, body)
    try:
        cluster: _Cluster = decode(body, _Cluster)
        elastic = elastic_of(cluster.spec, cluster.metadata, "spec")
    except UnreadableError as err:
        return failed(order, "spec_changed", problem("", "spec_unreadable", err.problem))
    meta = cluster.metadata
    if meta.uid != order.ref.uid:
        return failed(order, "gone", problem("", "name_taken"))
    if elastic is None:
        return failed(order, "spec_changed", problem("", "scales_no_longer"))
    stored = Intent.parse(elastic.mark)
    if stored == order.intent:
        return applied(order, meta.rv)
    if stored is not None and stored > order.intent:
        return failed(order, "superseded", problem("", "decision_superseded", decision=str(stored)))
    if tuple(group.name for group in elastic.groups) != decision.groups:
        return failed(order, "spec_changed", problem("", "worker_groups_differ"))
    grown = [name for name, size in decision.sizes.items() if (now := elastic.group(name)) and now.asked > size]
    if grown:
        return failed(order, "spec_changed", problem("", "worker_group_grown", group=grown[0]))
    most = {group.name: max(decision.most[group.name], group.least) for group in elastic.groups}
    notes = gate_notes(most, elastic, order.intent) | rayscaling.notes_of(cluster.spec, meta.annotations, decision.grow)
    ops: list[Op] = [
        {"op": "test", "path": "/metadata/uid", "value": order.ref.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version},
    ]
    ops += annotate(notes, annotated=bool(meta.annotations))
    ops += gate_ops(most, elastic, SCALED["RayCluster"], _replicas(decision, elastic))
    ops += _deletions(cluster.spec, elastic, workers or {})
    return msgspec.json.encode(ops, order="deterministic")


def _patch_part(order: Gating, body: bytes) -> bytes | Effect:
    """The patch that holds or starts a cluster of a RayService, or that lowers ``replicas`` of a cluster of a fixed
    size.
    """
    try:
        cluster: _Cluster = decode(body, _Cluster)
        writes = _part(order.decision, cluster)
    except UnreadableError as err:
        return failed(order, "spec_changed", problem("", "spec_unreadable", err.problem))
    meta = cluster.metadata
    if meta.uid != order.ref.uid:
        return failed(order, "gone", problem("", "name_taken"))
    stored = Intent.parse(meta.annotations.get(GATE, ""))
    if stored == order.intent:
        return applied(order, meta.rv)
    if stored is not None and stored > order.intent:
        return failed(order, "superseded", problem("", "decision_superseded", decision=str(stored)))
    if not writes:
        return failed(order, "spec_changed", problem("", "worker_groups_differ"))
    ops: list[Op] = [
        {"op": "test", "path": "/metadata/uid", "value": order.ref.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version},
        *annotate({GATE: str(order.intent)}, annotated=bool(meta.annotations)),
        *writes,
    ]
    return msgspec.json.encode(ops, order="deterministic")


def _part(decision: GateSet, cluster: _Cluster) -> list[Op]:
    if decision.suspend is not None:
        return [{"op": "add", "path": "/spec/suspend", "value": decision.suspend}]
    ops: list[Op] = []
    for index, group in enumerate(cluster.spec.worker_group_specs or ()):
        at = f"spec.workerGroupSpecs[{index}]"
        least, path = count(group.min_replicas, 0, at), f"/spec/workerGroupSpecs/{index}/replicas"
        replicas = max(decision.stay.get(group.group_name, 2**31) // hosts_of(group, at), least)
        if replicas < replicas_of(group, at):
            ops.append({"op": "add", "path": path, "value": replicas})
    return ops


def _replicas(decision: GateSet, elastic: Elastic) -> dict[str, int]:
    """``replicas`` to write; where an autoscaler was faster in the same direction, the value of the autoscaler."""
    farther = min if decision.granted or decision.workers else max
    asked = {group.name: group.asked for group in elastic.groups}
    return {
        name: count if elastic.driven else farther(count, asked.get(name, count))
        for name, count in decision.replicas.items()
    }


def _deletions(spec: RayClusterSpec, elastic: Elastic, workers: Mapping[str, list[str]]) -> Iterator[Op]:
    """Operations that add pods to the pods named for deletion; the rest of scaleStrategy stays."""
    for index, (group, raw) in enumerate(zip(elastic.groups, spec.worker_group_specs or (), strict=False)):
        names = workers.get(group.name)
        if names:
            path = f"{SCALED['RayCluster']}/workerGroupSpecs/{index}/scaleStrategy"
            # Where there is no autoscaler no other client takes names away.
            value = [*dict.fromkeys((*(() if elastic.driven else group.leaving), *names))]
            if raw.scale_strategy is None:
                yield {"op": "add", "path": path, "value": {"workersToDelete": value}}
            else:
                yield {"op": "add", "path": f"{path}/workersToDelete", "value": value}


# --- resumed or suspended ---------------------------------------------------------------------------------------------


NEVER = -1
"""A generation of no object."""


def patch_for(order: Outstanding, known: Known) -> bytes:
    """The JSON patch for a decision."""
    return resume_patch(order, known) if order.action == "resume" else suspend_patch(order, known)


def suspend_patch(order: Outstanding, known: Known) -> bytes:
    """The JSON patch that suspends the workload again; the annotations of the queue place stay."""
    restored = _restored(known.switch)
    stamps = {INTENT: str(order.intent), **marked(known.switch, suspended=True)}
    if restored:
        stamps[ON_FLAVORS] = ""
    switch = switched(order.ref.kind, known.switch, suspended=True)
    fence = _fence(order.ref.uid, known.generation if restored else None, known)
    return _encode([*fence, *annotate(stamps, annotated=known.annotated), *switch, *restored])


def _restored(switch: Switch) -> list[Op]:
    """Operations that take the nodes of flavors out of the templates that can be changed while the pods run."""
    return [op for template in _open(switch) if not template.fixed for op in _on_nodes(template, None)]


def resume_patch(order: Outstanding, known: Known) -> bytes:
    """The JSON patch that resumes the workload, fenced against everything but the object as ``known``.

    The patch changes nothing where the object differs from the decision's input.
    """
    dequeued_at = max(order.at, order.queued_at + 1)
    stamps = {
        INTENT: str(order.intent),
        DEQUEUED_AT: rfc3339(dequeued_at),
        DEQUEUE_STAMPS[0]: go_time(dequeued_at),
    }
    if not known.queued_at and order.queued_at:
        stamps[QUEUED_AT] = rfc3339(order.queued_at)
        stamps[ENQUEUE_STAMPS[0]] = go_time(order.queued_at)
    stamps |= marked(known.switch, suspended=False)
    gate: list[Op] = []
    if known.elastic is not None:
        most = opening(known.elastic)
        stamps |= gate_notes(most, known.elastic, order.intent)
        gate = gate_ops(most, known.elastic, SCALED[order.ref.kind])
    switch = switched(order.ref.kind, known.switch, suspended=False)
    marks = {GANG: order.ref.name, **({POD_GROUP_NAME: order.pod_group} if order.pod_group else {})}
    steer = steered(known.switch, marks) if order.placed else []
    on_nodes = [op for template in _open(known.switch) for op in _on_nodes(template, order.nodes.get(template.pods))]
    if order.nodes or on_nodes:
        stamps[ON_FLAVORS] = _added(known.switch, order.nodes)
    own = group_name(order.ref)
    if order.together and groups(order, known):
        steer = grouped(known.switch, own)
    else:
        steer += ungrouped(known.switch, own)
    steer += on_nodes
    fence = _fence(order.ref.uid, known.generation if known.basis == order.basis else NEVER, known)
    return _encode([*fence, *annotate(stamps, annotated=known.annotated), *gate, *switch, *steer])


def steered(switch: Switch, marks: dict[str, str]) -> list[Op]:
    """Operations that write our scheduler name and the marks of the gang into the pod templates.

    The values stay after a suspension: the next admission places the job from the same templates.
    """
    ops: list[Op] = []
    for template in _steerable(switch):
        if not (template.named or template.fixed):
            spec = "" if template.flat else "/spec"
            ops.append({"op": "add", "path": f"{template.at}{spec}/schedulerName", "value": SCHEDULER})
        if not template.marked:
            ops += _noted(template, marks)
    return ops


def grouped(switch: Switch, group: str) -> list[Op]:
    """Operations that write the native PodGroup of the pods into the pod templates.

    The annotation serves templates without the field, or with an immutable spec: a policy of ``deploy/policies`` sets
    the field of a pod from the annotation.
    """
    ops: list[Op] = []
    for template in _steerable(switch):
        if not (template.flat or template.fixed):
            path = f"{template.at}/spec/schedulingGroup"
            ops.append({"op": "add", "path": path, "value": {"podGroupName": group}})
        ops += _noted(template, {SCHEDULING_GROUP: group})
    return ops


def ungrouped(switch: Switch, group: str) -> list[Op]:
    """Operations that remove the values of ``grouped``, for an attempt with another scheduler."""
    ops: list[Op] = []
    for template in _steerable(switch):
        if template.group == group:
            ops.append({"op": "remove", "path": f"{template.at}/spec/schedulingGroup"})
        if template.noted:
            path = pointer(SCHEDULING_GROUP, "" if template.flat else "/metadata")
            ops.append({"op": "add", "path": f"{template.at}{path}", "value": ""})
    return ops


def _on_nodes(template: Template, nodes: FlavorNodes | None) -> list[Op]:
    """Operations that send the pods of a template to the nodes of its flavors, instead of those of an earlier attempt;
    None: as its author wrote the template.
    """
    at, labels = f"{template.at}{'' if template.flat else '/spec'}", nodes.labels if nodes is not None else {}
    mine = {key: value for key, value in labels.items() if key not in template.selects}
    tolerations = [_toleration(given) for given in nodes.tolerations] if nodes is not None else []
    stale = [key for key in template.written if key not in mine]
    ops: list[Op] = [{"op": "remove", "path": f"{at}/nodeSelector/{_step(key)}"} for key in stale]
    if mine and not (template.selects or template.written):
        ops.append({"op": "add", "path": f"{at}/nodeSelector", "value": mine})
    else:
        ops += [{"op": "add", "path": f"{at}/nodeSelector/{_step(key)}", "value": mine[key]} for key in mine]
    ops += [{"op": "remove", "path": f"{at}/tolerations/{index}"} for index in sorted(template.given, reverse=True)]
    if tolerations and not template.tolerates:
        ops.append({"op": "add", "path": f"{at}/tolerations", "value": tolerations})
    else:
        ops += [{"op": "add", "path": f"{at}/tolerations/-", "value": given} for given in tolerations]
    return ops


def _toleration(given: Toleration) -> dict[str, str]:
    parts = {"key": given.key, "operator": given.operator, "value": given.value, "effect": given.effect}
    return {name: text for name, text in parts.items() if text}


def _added(switch: Switch, nodes: Mapping[str, FlavorNodes]) -> str:
    """The annotation that tells what of the templates is Muster's; empty for nothing."""
    added: dict[str, FlavorNodes] = {}
    for template in _open(switch):
        mine = nodes.get(template.pods)
        if mine is not None:
            labels = {key: value for key, value in mine.labels.items() if key not in template.selects}
            added[template.pods] = FlavorNodes(labels, mine.tolerations)
    return msgspec.json.encode(added, order="deterministic").decode() if added else ""


def _open(switch: Switch) -> Iterator[Template]:
    """The mutable pod templates."""
    return (template for template in switch.templates if not template.sealed)


def _steerable(switch: Switch) -> Iterator[Template]:
    """The mutable templates of pods that no other scheduler places."""
    return (template for template in _open(switch) if not template.elsewhere)


def _noted(template: Template, marks: dict[str, str]) -> list[Op]:
    metadata = "" if template.flat else "/metadata"
    if template.annotations:
        return [
            {"op": "add", "path": f"{template.at}{pointer(key, metadata)}", "value": text}
            for key, text in marks.items()
        ]
    if template.metadata or template.flat:
        return [{"op": "add", "path": f"{template.at}{metadata}/annotations", "value": marks}]
    return [{"op": "add", "path": f"{template.at}{metadata}", "value": {"annotations": marks}}]


def switched(kind: str, switch: Switch, *, suspended: bool) -> list[Op]:
    """Operations that set the suspend field of a kind. Where the parent is missing, resuming needs no operation."""
    own = switch.field
    path = own.at if own is not None else KINDS[kind].suspend_path
    value: bool | str = suspended if own is None else own.value if suspended else own.resumed
    home, _, field = path.rpartition("/")
    if not switch.suspend_parent_missing:
        return [{"op": "add", "path": path, "value": value}]
    return [{"op": "add", "path": home, "value": {field: value}}] if suspended else []


def marked(switch: Switch, *, suspended: bool) -> dict[str, str]:
    """The suspend annotation, where in use, for operators without a suspend field."""
    return {SUSPEND: "true" if suspended else "false"} if switch.annotation else {}


def stamp_patch(uid: str, queued_at: int, known: Known) -> bytes:
    """The JSON patch that stores the queueing time on a waiting workload, so that the queue place survives the log."""
    stamps = {QUEUED_AT: rfc3339(queued_at), ENQUEUE_STAMPS[0]: go_time(queued_at)}
    return _encode([*_fence(uid, None, known), *annotate(stamps, annotated=known.annotated)])


def _fence(uid: str, generation: int | None, known: Known) -> list[Op]:
    """Tests passed only by the object as known: this uid, this spec, our previous intent or none."""
    ops: list[Op] = [{"op": "test", "path": "/metadata/uid", "value": uid}]
    if generation is not None:
        ops.append({"op": "test", "path": "/metadata/generation", "value": generation})
    if known.intent is not None:
        ops.append({"op": "test", "path": pointer(INTENT), "value": known.intent})
    elif known.annotated:
        ops.append({"op": "test", "path": pointer(INTENT), "value": None})
    else:
        ops.append({"op": "test", "path": "/metadata/annotations", "value": None})
    return ops


def _encode(ops: list[Op]) -> bytes:
    return msgspec.json.encode(ops, order="deterministic")


def after_reread(
    order: Outstanding, tried: Known, end: int, status: int, body: bytes, refusal: str
) -> Effect | RetryLater | Known:
    """The meaning of the object after a failed patch: an answer, or the facts for the next patch.

    ``tried``: the facts behind the patch; if the object equals these facts, the tests passed and the API server refused
    the change. ``refusal``: the message of the refusal. ``end``: sequence up to which our own log is known.
    """
    none = absent(order, status, body)
    if none is not None:
        return none
    meta = meta_of(body)
    if meta.uid != order.ref.uid:
        return failed(order, "gone", problem("", "name_taken"))
    stored = Intent.parse(meta.annotations.get(INTENT, ""))
    if stored == order.intent:
        return applied(order, meta.rv)
    if stored is not None and stored.generation > order.intent.generation:
        generation = order.intent.generation
        why = problem("", "intent_of_newer_log", key=INTENT, decision=str(stored), generation=generation)
        return failed(order, "refused", why)
    if stored is not None and stored > order.intent and stored.seq <= end:
        return failed(order, "superseded", problem("", "decision_superseded", decision=str(stored)))
    if order.basis is None:
        known = Known(
            intent=meta.annotations.get(INTENT),
            annotated=bool(meta.annotations),
            queued_at=first_stamp(meta.annotations, QUEUED_AT, *ENQUEUE_STAMPS),
            switch=replace(tried.switch, annotation=SUSPEND in meta.annotations, templates=()),
        )
        # The templates may have changed: tried again without writes into them.
        same = (known.intent, known.annotated) == (tried.intent, tried.annotated) and not _restored(tried.switch)
    elif order.ref.kind not in KINDS:
        # The definition of the kind was taken away: the object is what it was while its spec is.
        if meta.generation != tried.generation:
            return failed(order, "spec_changed", problem("", "spec_edited", generation=meta.generation))
        known = replace(tried, intent=meta.annotations.get(INTENT), annotated=bool(meta.annotations))
        same = (known.intent, known.annotated) == (tried.intent, tried.annotated)
    else:
        try:
            workload = KINDS[order.ref.kind].read(body)
        except UnreadableError as err:
            return failed(order, "spec_changed", problem("", "spec_unreadable", err.problem))
        if not isinstance(workload, Workload) or workload.basis != order.basis:
            return failed(order, "spec_changed", problem("", "spec_edited", generation=meta.generation))
        # The annotation as on the server: another client may have removed it, or written a longer value than a fact
        # keeps.
        known = replace(known_of(workload), intent=meta.annotations.get(INTENT))
        same = (known.intent, known.annotated, known.generation) == (tried.intent, tried.annotated, tried.generation)
    return failed(order, "refused", said(refusal)) if same else known
