"""The pods of a RayCluster, and the objects beside them: services, and the autoscaler's account. Pure builders."""

from __future__ import annotations

from muster.fakecluster.apiserver.kinds import ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, SERVICES
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.kuberay import words
from muster.fakecluster.kuberay.groups import config_hash
from muster.fakecluster.kuberay.settings import OperatorSettings
from muster.fakecluster.operations import Create, owner_of
from muster.model.api import ApiResource

AUTOSCALER_AMOUNTS = {"cpu": "500m", "memory": "512Mi"}
COLLECTOR_IMAGE = "quay.io/kuberay/collector"
AUTOSCALER_RESOURCES = {"requests": AUTOSCALER_AMOUNTS, "limits": AUTOSCALER_AMOUNTS}
INIT_AMOUNTS = {"cpu": "200m", "memory": "256Mi"}
INIT_RESOURCES = {"requests": INIT_AMOUNTS, "limits": INIT_AMOUNTS}

_RBAC = "rbac.authorization.k8s.io"


def head_pod(cluster: Obj, settings: OperatorSettings) -> Obj:
    """The head, with the autoscaler beside Ray if the cluster scales itself."""
    spec, name = cluster["spec"], cluster["metadata"]["name"]
    group = spec["headGroupSpec"]
    body = dict(group["template"]["spec"])
    if spec.get("enableInTreeAutoscaling"):
        options = spec.get("autoscalerOptions") or {}
        body["containers"] = [*body["containers"], _autoscaler(options, body["containers"][0].get("image", ""))]
        body["serviceAccountName"] = body.get("serviceAccountName") or name
        if options.get("version", settings.autoscaler_version) == "v2":
            body["restartPolicy"] = "Never"
    _add_collector(cluster, body)
    marks = _scheduled(cluster, body, settings)
    made = _pod(cluster, group, body, "head", words.HEAD_GROUP, words.pod_prefix(name, "head"), marks)
    if (spec.get("upgradeStrategy") or {}).get("type") == "Recreate":
        notes = made["metadata"].get("annotations") or {}
        made["metadata"]["annotations"] = {**notes, words.RECREATE_HASH: config_hash(spec)}
    return made


def _autoscaler(options: Obj, image: str) -> Obj:
    """The container beside the head: what ``autoscalerOptions`` say, else the image of the head and half a core."""
    own = [{"name": "RAY_CLUSTER_NAME", "valueFrom": _label(words.CLUSTER)}]
    own.append({"name": "RAY_CLUSTER_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}})
    own.append({"name": "RAY_HEAD_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    made = {
        "name": "autoscaler",
        "image": options.get("image") or image,
        "imagePullPolicy": options.get("imagePullPolicy") or "IfNotPresent",
        "args": [
            "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
        ],
        "env": [*own, *(options.get("env") or ())],
        "resources": options.get("resources", AUTOSCALER_RESOURCES),
    }
    return made | {key: options[key] for key in ("envFrom", "volumeMounts", "securityContext") if options.get(key)}


def _label(name: str) -> Obj:
    return {"fieldRef": {"fieldPath": f"metadata.labels['{name}']"}}


def worker_pod(cluster: Obj, group: Obj, settings: OperatorSettings, marks: dict[str, str]) -> Obj:
    """A worker of a group; ``marks`` are the labels that tell the hosts of one replica."""
    body = dict(group["template"]["spec"])
    if settings.init_containers:
        image = body["containers"][0].get("image", "")
        wait = {"name": "wait-gcs-ready", "image": image, "resources": INIT_RESOURCES}
        body["initContainers"] = [*(body.get("initContainers") or ()), wait]
    _add_collector(cluster, body)
    name, group_name = cluster["metadata"]["name"], group["groupName"]
    marks = {**marks, **_scheduled(cluster, body, settings)}
    return _pod(cluster, group, body, "worker", group_name, words.pod_prefix(f"{name}-{group_name}", "worker"), marks)


def _add_collector(cluster: Obj, body: Obj) -> None:
    """The collector of the history server, beside Ray in every pod of a cluster that has options for it."""
    options = (cluster["spec"].get("historyServerOptions") or {}).get("collectorOptions")
    if options is not None:
        sidecar = {"name": "hs-collector", "image": options.get("image") or COLLECTOR_IMAGE}
        sidecar["resources"] = options.get("resources", AUTOSCALER_RESOURCES)
        sidecar |= {key: options[key] for key in ("imagePullPolicy", "env") if key in options}
        body["containers"] = [*body["containers"], sidecar]


def _scheduled(cluster: Obj, body: Obj, settings: OperatorSettings) -> dict[str, str]:
    """The labels a pod gets from the integration with a batch scheduler, which is named in its spec."""
    if not settings.batch_scheduler:
        return {}
    body["schedulerName"] = settings.batch_scheduler
    queue = (cluster["metadata"].get("labels") or {}).get(words.KAI_QUEUE)
    return {words.KAI_QUEUE: queue} if queue else {}


def surroundings(cluster: Obj) -> list[Create]:
    """The head's service, and what the autoscaler needs to read and patch its cluster."""
    meta = cluster["metadata"]
    name, namespace = meta["name"], meta["namespace"]
    selector = {words.CLUSTER: name, words.NODE_TYPE: "head", words.IDENTIFIER: f"{name}-head"}
    ports = [{"name": key, "port": port, "targetPort": port} for key, port in sorted(words.PORTS.items())]
    service = {"spec": {"clusterIP": "None", "selector": selector, "ports": ports}}
    made = [_beside(cluster, SERVICES, words.head_service(cluster), service)]
    if not cluster["spec"].get("enableInTreeAutoscaling"):
        return made
    account = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]},
        {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get", "patch"]},
    ]
    role = {"roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name}, "subjects": [account]}
    return [
        *made,
        _beside(cluster, SERVICE_ACCOUNTS, name, {}),
        _beside(cluster, ROLES, name, {"rules": rules}),
        _beside(cluster, ROLE_BINDINGS, name, role),
    ]


def _beside(cluster: Obj, resource: ApiResource, name: str, content: Obj) -> Create:
    meta = cluster["metadata"]
    labels = {words.CLUSTER: meta["name"], words.CREATED_BY: words.OPERATOR, words.APP_NAME: "kuberay"}
    made = {
        "name": name,
        "namespace": meta["namespace"],
        "labels": labels,
        "ownerReferences": owner_of(cluster),
    }
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": made, **content}
    return Create(resource, meta["namespace"], body)


def _pod(
    cluster: Obj, group: Obj, spec: Obj, node_type: str, group_name: str, prefix: str, marks: dict[str, str]
) -> Obj:
    meta, given = cluster["metadata"], group["template"].get("metadata") or {}
    if (meta.get("labels") or {}).get(words.FROM_KIND) == "RayService":
        marks = {**marks, words.SERVES: "false" if node_type == "head" else "true"}
    labels = {
        **(given.get("labels") or {}),
        **(group.get("labels") or {}),
        words.IS_RAY_NODE: "yes",
        words.CLUSTER: meta["name"],
        words.NODE_TYPE: node_type,
        words.GROUP: group_name,
        words.IDENTIFIER: f"{meta['name']}-{node_type}",
        words.APP_NAME: "kuberay",
        words.CREATED_BY: words.OPERATOR,
        **marks,
    }
    made: Obj = {
        "generateName": prefix,
        "namespace": meta["namespace"],
        "labels": labels,
        "ownerReferences": owner_of(cluster),
    }
    if given.get("annotations"):
        made["annotations"] = given["annotations"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": spec}
