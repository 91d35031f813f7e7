"""The objects of Kubernetes that run Muster: bases of kustomize, and the files rendered from the bases.

``muster_tools.shipping`` writes the files: the bases ``deploy/production`` and ``deploy/small``, the files
``deploy/install.yaml`` and ``deploy/install-small.yaml``, and the chart.
Production: three servers of NATS and a Deployment for each process of a layout, twice but for the keeper. Small: one
NATS, and one pod with the processes of layout ``all``. Both use the keys that ``muster nats keys`` makes, the
certificate in Secret ``muster-nats-tls``, and the rights of deploy/rbac. ``muster_cli.kindlists`` writes the lists of
kinds in the manifests that people write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from muster.core.objects.meta import RAY_HEAD, RAY_NODE_TYPE
from muster.runtime import kinds
from muster.runtime.clusterlease import NAMESPACE
from muster.runtime.layouts import GROUPS, KEEPER, LAYOUTS, SERVICES, members
from muster.runtime.natsaccounts import ACCOUNTS_FILE, API, KEYS, dashed, inbox, secret_of

Object = dict[str, Any]

IMAGE = "muster:0.1.0"
NATS_IMAGE = "nats:2.15.1-alpine"
URL = f"nats://nats.{NAMESPACE}.svc:4222"
SERVER_FILE = "deploy/nats/server.conf"
ALIVE_FILE = "deploy/nats/alive.sh"
ARCHIVE = "archive"
ARCHIVE_SIZE, NATS_SIZE = "64Gi", "72Gi"
TLS, CONFIG = "muster-nats-tls", "muster-nats"
"""Secret with the certificate, ConfigMap with the configuration of NATS."""
FILES = {False: "deploy/install.yaml", True: "deploy/install-small.yaml"}
BASES = {False: "deploy/production", True: "deploy/small"}
"""{whether small: folder of the base}"""
RIGHTS = "deploy/rbac"
KUSTOMIZATION, WITHOUT_RIGHTS = "kustomization.yaml", "others.yaml"
"""The list of files of a base, and the file of the accounts without rights."""
NATS_FILE = "nats.yaml"
COMMANDS: dict[str, list[str]] = {
    **{name: ["python", "-m", f"muster_{name}"] for name in SERVICES if name != KEEPER},
    **{name: ["muster", "run", name] for name in (KEEPER, *GROUPS)},
}
"""{process, by its NATS user: command of the container}"""
SPEAKS_TO_KUBERNETES = ("watcher", "actuator", "gateway")
RAY_READER, ACTUATOR = "autoscaler_bridge", "actuator"
PORT, GATEWAY, GATEWAY_PORT = 8080, "gateway", 8800
CPU, MEMORY_MI = {"requests": "100m", "limits": "2"}, {"requests": 256, "limits": 1024}
STATE_MI = {"requests": 64, "limits": 512}
"""Memory of each further service in a process."""
LABEL = {"app.kubernetes.io/part-of": "muster"}


def objects(*, small: bool) -> list[Object]:
    """Every object of one form, in the order of application."""
    return granted() + [document for part in parts(small=small).values() for document in part]


def granted() -> list[Object]:
    """Namespace, accounts and rights: the same in both forms."""
    made: list[Object] = []
    for name in rights():
        made += accounts() if name == WITHOUT_RIGHTS else yaml.safe_load_all(Path(RIGHTS, name).read_text())
    return made


def rights() -> list[str]:
    """The files of deploy/rbac, in order."""
    there = {path.name for path in Path(RIGHTS).glob("*.yaml")}
    return sorted({*there, WITHOUT_RIGHTS} - {KUSTOMIZATION})


def accounts() -> Iterator[Object]:
    """The deciding services and the publisher never speak to the API server: no rights, and no token to use."""
    for name in sorted({*SERVICES} - {*SPEAKS_TO_KUBERNETES}):
        meta = _meta(f"muster-{dashed(name)}")
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta, "automountServiceAccountToken": False}


def parts(*, small: bool, layout: str = "separate") -> dict[str, list[Object]]:
    """{file of a base: objects}; ``layout``: of the production form."""
    servers = 1 if small else 3
    pods = {"muster": LAYOUTS["all"]} if small else {f"muster-{dashed(name)}": (name,) for name in LAYOUTS[layout]}
    return {
        NATS_FILE: [_nats_config(small=small), *_nats(servers), _log_init(servers)],
        "services.yaml": [*_services(pods, small=small)],
        "network.yaml": [*_network(pods)],
    }


def _meta(name: str, **labels: str) -> Object:
    return {"name": name, "namespace": NAMESPACE, "labels": {**LABEL, **labels}}


def _names(name: str) -> Object:
    return {**LABEL, "app.kubernetes.io/name": name}


def _services(pods: Mapping[str, Sequence[str]], *, small: bool) -> Iterator[Object]:
    """``pods``: {name: the processes of a pod}"""
    for name, processes in pods.items():
        services = _within(processes)
        if len(services) > 1:
            yield from _account(name, "muster-small" if small else name, services)
        containers = [_container(process, PORT + index) for index, process in enumerate(processes, 1 if small else 0)]
        pod = _pod(name, containers, [*processes], token=not {*SPEAKS_TO_KUBERNETES}.isdisjoint(services))
        # The volume of the archive is one process's at a time; nothing waits for the keeper.
        yield _deployment(name, 1 if KEEPER in services else 2, pod)
        if KEEPER not in services:
            budget = {"maxUnavailable": 1, "selector": {"matchLabels": _names(name)}}
            yield {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": _meta(name), "spec": budget}
    [gateway] = _pods_with(GATEWAY, pods)
    yield _gateway_service(gateway)
    yield _archive()


def _within(processes: Sequence[str]) -> list[str]:
    """The services of processes."""
    return [service for process in processes for service in members(process)]


def _pods_with(service: str, pods: Mapping[str, Sequence[str]]) -> list[str]:
    """The pods that run a service."""
    return [name for name, processes in pods.items() if service in _within(processes)]


def _account(name: str, binding: str, services: Sequence[str]) -> Iterator[Object]:
    """The account of a pod with several services, with the rights of each."""
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta(name)}
    rbac = "rbac.authorization.k8s.io"
    for service in SPEAKS_TO_KUBERNETES:
        if service in services:
            yield {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"{binding}-{service}", "labels": LABEL},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": f"muster-{service}"},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
            }


def _archive() -> Object:
    """The volume to which the keeper copies the log, so that copied generations can be deleted from NATS."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": ARCHIVE_SIZE}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": _meta(f"muster-{ARCHIVE}"), "spec": spec}


def _gateway_service(pods: str) -> Object:
    """The address of the gateway for people and programs. TLS is the business of the ingress before the gateway."""
    ports = [{"name": "http", "port": 80, "targetPort": GATEWAY_PORT}]
    spec = {"selector": _names(pods), "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _meta(f"muster-{GATEWAY}"), "spec": spec}


ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
"""Names the default of the server, as the claim of NATS does: applied again it is unchanged."""


def _deployment(name: str, replicas: int, pod: Object) -> Object:
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": _names(name)},
        "strategy": ROLLING if replicas > 1 else {"type": "Recreate"},
        "template": {"metadata": {"labels": _names(name)}, "spec": pod},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _meta(name), "spec": spec}


def _pod(account: str, containers: list[Object], keys: list[str], *, token: bool) -> Object:
    volumes: list[Object] = [
        {"name": f"key-{dashed(key)}", "secret": {"secretName": secret_of(key), "defaultMode": 0o440}} for key in keys
    ]
    volumes += [_authority(), {"name": "tmp", "emptyDir": {}}]
    if any(_reads_kinds(key) for key in keys):
        volumes.append({"name": "kinds", "configMap": {"name": kinds.NAME, "optional": True}})
    if KEEPER in keys:
        volumes.append({"name": ARCHIVE, "persistentVolumeClaim": {"claimName": f"muster-{ARCHIVE}"}})
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": _names(account)},
    }
    return {
        "serviceAccountName": account,
        "priorityClassName": "muster",
        "automountServiceAccountToken": token,
        "securityContext": _identity(65532),
        "terminationGracePeriodSeconds": 15,
        "topologySpreadConstraints": [spread],
        "containers": containers,
        "volumes": volumes,
    }


def _authority() -> Object:
    return {"name": "tls", "secret": {"secretName": TLS, "items": [{"key": "ca.crt", "path": "ca.crt"}]}}


def _identity(user: int) -> Object:
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


CONFINED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def _resources(services: int) -> Object:
    """The resources of a process with this number of services; amounts as the API server writes them, to be applied
    again.
    """
    memory = {kind: MEMORY_MI[kind] + (services - 1) * STATE_MI[kind] for kind in CPU}
    texts = {kind: f"{mi}Mi" if mi % 1024 else f"{mi // 1024}Gi" for kind, mi in memory.items()}
    return {kind: {"cpu": CPU[kind], "memory": texts[kind]} for kind in CPU}


def _container(process: str, port: int) -> Object:
    def probe(path: str, **more: int) -> Object:
        return {"httpGet": {"path": path, "port": port}, **more}

    return {
        "name": dashed(process),
        "image": IMAGE,
        "command": COMMANDS[process],
        "env": _environment(process, port),
        "ports": [
            {"containerPort": port_number}
            for port_number in (port, *([GATEWAY_PORT] if GATEWAY in members(process) else []))
        ],
        "startupProbe": probe("/startupz", periodSeconds=2, failureThreshold=300),
        "readinessProbe": probe("/readyz", periodSeconds=5, timeoutSeconds=3),
        "livenessProbe": probe("/livez", periodSeconds=10, timeoutSeconds=5),
        "resources": _resources(len(members(process))),
        "securityContext": CONFINED,
        "volumeMounts": _mounts(process),
    }


def _environment(user: str, port: int = 0) -> list[Object]:
    plain = {
        "MUSTER_NATS_URL": URL,
        "MUSTER_NATS_NKEY_FILE": f"/run/muster/{dashed(user)}/seed",
        "MUSTER_NATS_INBOX_PREFIX": inbox(user),
        "MUSTER_NATS_API_PREFIX": API,
        "MUSTER_NATS_CA_FILE": "/run/muster/tls/ca.crt",
    }
    if port:
        plain |= {"MUSTER_HEALTH_HOST": "0.0.0.0", "MUSTER_HEALTH_PORT": str(port)}  # noqa: S104 - inside its pod
    if user == KEEPER:
        plain |= {"MUSTER_LOG_ARCHIVE": f"/{ARCHIVE}"}
    if _reads_kinds(user):
        plain |= {"MUSTER_KINDS_FOLDER": KINDS_FOLDER}
    if ACTUATOR in members(user):
        plain |= {"MUSTER_GPU_RESERVATION_IMAGE": IMAGE}
    if GATEWAY in members(user):
        plain |= {"MUSTER_GATEWAY_HOST": "0.0.0.0"}  # noqa: S104 - inside its pod
    name = {"name": "MUSTER_PROCESS", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    return [*({"name": key, "value": value} for key, value in plain.items()), name]


def _mounts(user: str) -> list[Object]:
    return [
        {"name": f"key-{dashed(user)}", "mountPath": f"/run/muster/{dashed(user)}", "readOnly": True},
        {"name": "tls", "mountPath": "/run/muster/tls", "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - of the container
        *([{"name": ARCHIVE, "mountPath": f"/{ARCHIVE}"}] if user == KEEPER else []),
        *([{"name": "kinds", "mountPath": KINDS_FOLDER, "readOnly": True}] if _reads_kinds(user) else []),
    ]


KINDS_FOLDER = "/run/muster/kinds"


def _reads_kinds(user: str) -> bool:
    """Whether a process reads objects of jobs, and so the definitions of more kinds."""
    return not {"watcher", "actuator", GATEWAY}.isdisjoint(members(user))


def _log_init(replicas: int) -> Object:
    container = {
        "name": "log-init",
        "image": IMAGE,
        "command": ["muster", "log", "init", "--replicas", str(replicas)],
        "env": _environment("admin"),
        "resources": _resources(1),
        "securityContext": CONFINED,
        "volumeMounts": _mounts("admin"),
    }
    pod = _pod("default", [container], ["admin"], token=False) | {"restartPolicy": "OnFailure"}
    del pod["topologySpreadConstraints"]
    spec = {"backoffLimit": 100, "template": {"metadata": {"labels": _names("muster-log-init")}, "spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _meta("muster-log-init"), "spec": spec}


# --- NATS -------------------------------------------------------------------------------------------------------------


def _nats_config(*, small: bool) -> Object:
    server = Path(SERVER_FILE).read_text()
    if small:
        server = server.partition("\ncluster {")[0]
    files = {"accounts.conf": ACCOUNTS_FILE, "alive.sh": ALIVE_FILE}
    data = {"server.conf": server, **{name: Path(path).read_text() for name, path in files.items()}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta(CONFIG), "data": data}


def _nats(servers: int) -> Iterator[Object]:
    names = _names("nats")
    ports = [{"name": "client", "port": 4222}, {"name": "cluster", "port": 6222}]
    service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": names, "ports": ports}
    yield {"apiVersion": "v1", "kind": "Service", "metadata": _meta("nats"), "spec": service}
    if servers > 1:
        budget = {"maxUnavailable": 1, "selector": {"matchLabels": names}}
        yield {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": _meta("nats"), "spec": budget}
    health = {"path": "/healthz?js-enabled-only=true", "port": 8222}
    container = {
        "name": "nats",
        "image": NATS_IMAGE,
        "command": ["nats-server", "--config", "/etc/nats/conf/server.conf"],
        "env": [{"name": "NATS_SERVER_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [{"containerPort": port} for port in (4222, 6222, 8222)],
        "startupProbe": {"httpGet": health, "periodSeconds": 2, "failureThreshold": 150},
        "readinessProbe": {"httpGet": health, "periodSeconds": 5},
        "livenessProbe": {
            "exec": {"command": ["sh", "/etc/nats/conf/alive.sh"]},
            "periodSeconds": 10,
            "timeoutSeconds": 12,
        },
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"cpu": "2", "memory": "2Gi"}},
        "securityContext": CONFINED,
        "volumeMounts": [
            {"name": "conf", "mountPath": "/etc/nats/conf", "readOnly": True},
            {"name": "tls", "mountPath": "/etc/nats/tls", "readOnly": True},
            {"name": "data", "mountPath": "/data"},
        ],
    }
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": names}}
    pod = {
        "priorityClassName": "muster",
        "automountServiceAccountToken": False,
        "securityContext": _identity(1000),
        "terminationGracePeriodSeconds": 60,
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "containers": [container],
        "volumes": [
            {"name": "conf", "projected": {"sources": [{"configMap": {"name": name}} for name in (CONFIG, KEYS)]}},
            {"name": "tls", "secret": {"secretName": TLS, "defaultMode": 0o440}},
        ],
    }
    disk = {"requests": {"storage": NATS_SIZE}}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": disk, "volumeMode": "Filesystem"},
        "status": {"phase": "Pending"},
    }
    spec = {
        "replicas": servers,
        "serviceName": "nats",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": names},
        "template": {"metadata": {"labels": names}, "spec": pod},
        "volumeClaimTemplates": [claim],
    }
    yield {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": _meta("nats"), "spec": spec}


# --- which service may reach which ----------------------------------------------------------------------------------


def _network(pods: Mapping[str, Sequence[str]]) -> Iterator[Object]:
    """No traffic, but services to NATS, three to the API server, one to Ray heads; metrics; and readers to the
    gateway.
    """
    nats, ours = {"podSelector": {"matchLabels": _names("nats")}}, {"podSelector": {"matchLabels": LABEL}}
    yield _rule("muster-nothing-else", {}, {"ingress": [], "egress": []})
    names = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    to_nats = [{"to": [nats], "ports": _tcp(4222)}, {"ports": names}]
    monitors = {"namespaceSelector": {"matchLabels": {"muster.dev/monitoring": "true"}}}
    metrics = [{"from": [monitors], "ports": _tcp(PORT, PORT + len(SERVICES))}]
    yield _rule("muster-services", LABEL, {"egress": to_nats, "ingress": metrics})
    servers = {
        "ingress": [{"from": [ours], "ports": _tcp(4222)}, {"from": [nats], "ports": _tcp(6222)}],
        "egress": [{"to": [nats], "ports": _tcp(6222)}, {"ports": names}],
    }
    yield _rule("muster-nats", _names("nats"), servers)
    # The API server has no pods to select; its usual ports.
    for name in dict.fromkeys(pod for service in SPEAKS_TO_KUBERNETES for pod in _pods_with(service, pods)):
        api = [{"ports": [{"protocol": "TCP", "port": port} for port in (443, 6443)]}]
        yield _rule(f"{name}-to-kubernetes", _names(name), {"egress": api})
    served = {"namespaceSelector": {"matchLabels": {"muster.dev/gateway": "true"}}}
    [name] = _pods_with(GATEWAY, pods)
    yield _rule(f"{name}-from-people", _names(name), {"ingress": [{"from": [served], "ports": _tcp(GATEWAY_PORT)}]})
    [reader] = _pods_with(RAY_READER, pods)
    heads = {"namespaceSelector": {}, "podSelector": {"matchLabels": {RAY_NODE_TYPE: RAY_HEAD}}}
    ports = [*_tcp(6379), *_tcp(8265)]
    yield _rule(f"{reader}-to-ray-heads", _names(reader), {"egress": [{"to": [heads], "ports": ports}]})


def _tcp(port: int, last: int = 0) -> list[Object]:
    return [{"protocol": "TCP", "port": port, **({"endPort": last} if last else {})}]


def _rule(name: str, pods: Object, rules: Object) -> Object:
    types = [kind.capitalize() for kind in ("ingress", "egress") if kind in rules]
    sides = {kind: side for kind, side in rules.items() if side}
    spec = {"podSelector": {"matchLabels": pods} if pods else {}, "policyTypes": types, **sides}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": _meta(name), "spec": spec}
