"""Writes about one pod: its binding, its share of a GPU, its removal.

Binding a pod to a node, and the meaning of the API server's answer. The uid of the pod is a precondition: a new pod of
the same name is another pod. The API server refuses a second binding of a pod to the same node, and the pod then shows
the finished binding.

Shared GPUs: one pod keeps the device, and each sharing pod is wired to the device. The device plugin hands out whole
devices, so one pod for each shared device requests one device, and the container of this pod reports the UUID of the
device in an annotation. A sharing pod receives the UUID by a label, by the ConfigMaps named in the pod, and by the
annotations of the binding. Nothing enforces the share used by a pod.

Workers of a Ray cluster to be removed: whether the pod still is the chosen worker, and the deletion by uid. A pod is
read before any write. A pod of another uid, cluster or group is left alone, and so is a head.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from muster.core.actuation.orders import (
    Answer,
    Bind,
    Effect,
    Freeing,
    Outstanding,
    Removing,
    Reread,
    RetryLater,
    Unbind,
    applied,
    failed,
    message_of,
    not_done,
    refused,
    retry,
    said,
    said_by,
)
from muster.core.objects.gpushares import GROUP, KEEPS, RESERVATIONS, container_of
from muster.core.objects.meta import (
    GPU_DEVICE,
    GPU_GROUPS,
    GPU_PORTION,
    GPU_UUIDS,
    INTENT,
    RAY_CLUSTER,
    RAY_GROUP,
    RAY_NODE_TYPE,
    RAY_WORKER,
    Meta,
    UnreadableError,
    decode,
)
from muster.events.effects import EffectFailed
from muster.model.keys import Ref
from muster.model.placing import GPU
from muster.model.problem import problem

# --- bindings ---------------------------------------------------------------------------------------------------------


class _BoundPodSpec(Struct, frozen=True, rename="camel"):
    node_name: str | None = None


class _BoundPod(Struct, frozen=True):
    metadata: Meta
    spec: _BoundPodSpec = _BoundPodSpec()


def binding_for(order: Bind, uuids: tuple[str, ...] = ()) -> bytes:
    """The Binding to create. The API server copies the annotations to the pod before a kubelet can start the pod.

    ``uuids``: the names of the devices in the driver.
    """
    ref = order.ref
    metadata: dict[str, Any] = {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid}
    if order.devices:
        notes = {GPU_DEVICE: ",".join(map(str, order.devices)), GPU_GROUPS: ",".join(order.groups)}
        notes |= {GPU_UUIDS: ",".join(uuids), GPU_PORTION: portion(order.share)}
        metadata["annotations"] = {key: text for key, text in sorted(notes.items()) if text}
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": order.node},
    }
    return msgspec.json.encode(body, order="deterministic")


def portion(share: int) -> str:
    """Thousandths of a device as a fraction: ``0.5``, ``0.125``."""
    return f"0.{share:03}".rstrip("0") if 0 < share < 1000 else "1" if share else ""


def read_binding(order: Bind, status: int, body: bytes) -> Answer:
    """The meaning of the answer to a Binding."""
    if 200 <= status < 300:
        return applied(order)
    return Reread() if status == 409 else not_done(order, status, body)


def after_binding(order: Bind, status: int, body: bytes, refusal: str) -> Effect | RetryLater:
    """The state of the pod after a binding met a conflict. ``refusal``: the message of the refusal."""
    pod = _read(order, status, body)
    if not isinstance(pod, _BoundPod):
        return pod or RetryLater("conflict", said(refusal))
    settled = _settled(order, pod)
    if settled is not None:
        return settled
    gated = "schedulingGates" in refusal
    return failed(order, "refused", said(refusal)) if gated else RetryLater("conflict", said(refusal))


def after_unbind(order: Unbind, status: int, body: bytes) -> Effect | RetryLater:
    """The state of the pod after a withdrawn binding, in case the binding was done before."""
    pod = _read(order, status, body)
    if not isinstance(pod, _BoundPod):
        return pod or RetryLater("unavailable", said_by(body))
    return _settled(order, pod) or failed(order, "withdrawn", problem("", "not_bound", node=order.node))


def _read(order: Bind | Unbind, status: int, body: bytes) -> _BoundPod | EffectFailed | None:
    """The pod; the effect where the pod is gone; None when the answer tells nothing."""
    if status == 404:
        return failed(order, "gone", problem("", "object_gone"))
    if not 200 <= status < 300:
        return None
    try:
        pod: _BoundPod = decode(body, _BoundPod)
    except UnreadableError as err:
        return failed(order, "refused", err.problem)
    return pod


def _settled(order: Bind | Unbind, pod: _BoundPod) -> Effect | None:
    """The final outcome of a binding, as the pod shows it; None while the pod may still be bound."""
    if pod.metadata.uid != order.ref.uid:
        return failed(order, "gone", problem("", "name_taken"))
    if pod.spec.node_name == order.node:
        return applied(order, pod.metadata.rv)
    if pod.spec.node_name:
        return failed(order, "superseded", problem("", "bound_elsewhere", node=pod.spec.node_name))
    if pod.metadata.deletion_timestamp:
        return failed(order, "gone", problem("", "being_deleted"))
    return None


# --- shares of GPUs ---------------------------------------------------------------------------------------------------


REPORTED = "run.ai/reserve_for_gpu_index"
"""Annotation by which a reservation pod reports the UUID of its device."""
CONFIG_MAP = "runai/shared-gpu-configmap"
"""Annotation of a pod: the prefix of the names of the ConfigMaps from which its containers read their device."""
IMAGE = "muster:latest"
"""Image of the reservation pods, unless the configuration names another: the image of the services."""
REPORTER = ("python", "-m", "muster.runtime.gpureport")

Body = dict[str, Any]


class _Container(Struct, frozen=True):
    name: str = ""


class _ReservationSpec(Struct, frozen=True, rename="camel"):
    node_name: str | None = None
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] | None = None


class _ReservationStatus(Struct, frozen=True):
    phase: str = ""
    message: str = ""


class _ReservationPod(Struct, frozen=True):
    metadata: Meta
    spec: _ReservationSpec = _ReservationSpec()
    status: _ReservationStatus | None = None


# --- the pod that keeps a device ----------------------------------------------------------------------------------


def keeper_name(group: str) -> str:
    """The name of the pod that keeps the device of a group."""
    return f"gpu-reservation-{group}"


def keeper_for(order: Bind, group: str, image: str) -> bytes:
    """The reservation pod: the pod keeps a device of the order's node for a group."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": keeper_name(group),
            "namespace": RESERVATIONS,
            "labels": {GROUP: group, KEEPS: group},
            "annotations": {INTENT: str(order.intent), "karpenter.sh/do-not-disrupt": "true"},
        },
        "spec": {
            "nodeName": order.node,
            "restartPolicy": "Always",
            "tolerations": [{"operator": "Exists"}],
            "serviceAccountName": "muster-gpu-reservation",
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "reservation",
                    "image": image,
                    "command": list(REPORTER),
                    "resources": {"limits": {GPU: "1"}, "requests": {GPU: "1"}},
                    "env": [
                        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
                        for name, path in (("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace"))
                    ],
                }
            ],
        },
    }
    return msgspec.json.encode(body, order="deterministic")


def read_kept(order: Bind, status: int, body: bytes) -> Effect | RetryLater | None:
    """The meaning of the answer to the creation of the reservation pod; None: the pod exists."""
    message = message_of(body)
    if 200 <= status < 300 or (status == 409 and "already exists" in message):
        return None
    if status == 404:
        return failed(order, "refused", problem("", "no_reservations", said_by(body), namespace=RESERVATIONS))
    why = problem("", "gpu_not_reserved", said_by(body), node=order.node)
    return retry(status, body) or failed(order, "refused", why)


def read_uuid(order: Bind, status: int, body: bytes) -> str | Effect | RetryLater:
    """The UUID of the reservation pod's device, once reported."""
    if status == 404:
        return RetryLater("conflict", problem("", "gpu_keeper_gone"))
    if not 200 <= status < 300:
        return refused(order, status, body)
    try:
        pod: _ReservationPod = decode(body, _ReservationPod)
    except UnreadableError as err:
        return failed(order, "refused", err.problem)
    where = pod.status or _ReservationStatus()
    if where.phase == "Failed":
        why = said(where.message) if where.message else problem("", "pod_failed")
        return failed(order, "refused", problem("", "gpu_not_given", why, node=order.node, pod=pod.metadata.name))
    uuid = pod.metadata.annotations.get(REPORTED, "")
    if not uuid:
        return RetryLater("unavailable", problem("", "gpu_not_reported", pod=pod.metadata.name))
    return uuid[:256]


def read_freed(order: Freeing, status: int, body: bytes) -> Effect | RetryLater:
    """The meaning of the answer to the deletion of a reservation pod."""
    if 200 <= status < 300 or status in (404, 409, 410):
        return applied(order)  # What has its name and not its uid is another one.
    return not_done(order, status, body)


# --- the pods that share it ---------------------------------------------------------------------------------------


class Wiring(Struct, frozen=True):
    """The link of a pod to its devices: the labels of the pod, and the ConfigMaps read by the pod."""

    labels: bytes
    """A merge patch of the pod."""
    config_maps: tuple[tuple[str, bytes], ...]
    """(name, ConfigMap)"""


def wiring_for(order: Bind, status: int, body: bytes, uuids: tuple[str, ...]) -> Wiring | Effect | RetryLater:
    """The wiring of a pod, from the answer to reading the pod."""
    if not 200 <= status < 300:
        return not_done(order, status, body)
    try:
        pod: _ReservationPod = decode(body, _ReservationPod)
    except UnreadableError as err:
        return failed(order, "refused", err.problem)
    if pod.metadata.uid != order.ref.uid:
        return failed(order, "gone", problem("", "name_taken"))
    config_maps = tuple((name, _config_map(order, name, data)) for name, data in _config_maps(order, pod, uuids))
    labels = (
        {GROUP: order.groups[0]} if len(order.groups) == 1 else {f"{GROUP}/{group}": group for group in order.groups}
    )
    patch = {"metadata": {"uid": order.ref.uid, "labels": labels}}
    return Wiring(msgspec.json.encode(patch, order="deterministic"), config_maps)


def _config_maps(order: Bind, pod: _ReservationPod, uuids: tuple[str, ...]) -> list[tuple[str, dict[str, str]]]:
    """(name, data) of the ConfigMaps of the sharing container, where the pod names any."""
    base = pod.metadata.annotations.get(CONFIG_MAP, "")[:200]
    if not base:
        return []
    wanted = container_of(pod.metadata.annotations)
    index = next((f"{i}" for i, container in enumerate(pod.spec.containers) if container.name == wanted), "")
    if not index:
        index = next(
            (f"i{i}" for i, container in enumerate(pod.spec.init_containers or ()) if container.name == wanted), "0"
        )
    data = {
        "NVIDIA_VISIBLE_DEVICES": ",".join(uuids),
        "RUNAI_NUM_OF_GPUS": portion(order.share),
        "GPU_PORTION": portion(order.share),
    }
    return [(f"{base}-{index}", data), (f"{base}-{index}-evar", {"GPU_PORTION": data["GPU_PORTION"]})]


def _config_map(order: Bind, name: str, data: dict[str, str]) -> bytes:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": order.ref.name, "uid": order.ref.uid}
    meta = {"name": name, "namespace": order.ref.namespace, "ownerReferences": [owner]}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
    return msgspec.json.encode(body, order="deterministic")


def read_written(order: Bind, status: int, body: bytes) -> Effect | RetryLater | None:
    """The meaning of the answer to a write of the wiring; None: the write is done."""
    if 200 <= status < 300:
        return None
    if status == 409 and "recondition" in message_of(body):
        return failed(order, "gone", problem("", "name_taken"))
    if status == 404:
        return failed(order, "gone", said_by(body))
    return refused(order, status, body)


# --- workers that are removed -----------------------------------------------------------------------------------------


class _Worker(Struct, frozen=True):
    metadata: Meta


def is_worker(cluster: Ref, group: str, pod: Ref, status: int, body: bytes) -> bool | RetryLater:
    """Whether a pod, as just read, is the chosen worker: same uid, same cluster, same group.

    The operator deletes any pod of a name in the list, without checks.
    """
    if status == 404:
        return False
    if not 200 <= status < 300:
        return RetryLater("unavailable", said_by(body))
    meta = _meta_of(body)
    ours = meta is not None and (meta.labels.get(RAY_CLUSTER), meta.labels.get(RAY_GROUP)) == (cluster.name, group)
    return meta is not None and meta.uid == pod.uid and ours


def before_deletion(order: Removing, status: int, body: bytes) -> Effect | RetryLater | None:
    """The outcome of a deletion, as the pod shows it; None: the pod has to be deleted."""
    worker = is_worker(order.cluster, order.group, order.ref, status, body)
    if isinstance(worker, RetryLater):
        return refused(order, status, body)
    meta = _meta_of(body) if worker else None
    if meta is None or meta.labels.get(RAY_NODE_TYPE) != RAY_WORKER:
        return failed(order, "gone", problem("", "worker_gone"))
    return applied(order) if meta.deletion_timestamp else None


def eviction(order: Outstanding) -> bytes:
    """An eviction of this pod: another pod of the same name, with another uid, stays."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": order.ref.name, "namespace": order.ref.namespace},
        "deleteOptions": {"preconditions": {"uid": order.ref.uid}},
    }
    return msgspec.json.encode(body, order="deterministic")


def read_deletion(order: Removing | Outstanding, status: int, body: bytes) -> Effect | RetryLater:
    """The meaning of the answer to the deletion."""
    if 200 <= status < 300:
        return applied(order)
    if status == 409 and "recondition" in message_of(body):
        return failed(order, "gone", problem("", "name_taken"))
    return not_done(order, status, body)


def _meta_of(body: bytes) -> Meta | None:
    try:
        worker: _Worker = decode(body, _Worker)
    except UnreadableError:
        return None
    return worker.metadata
