"""Where the head of a Ray cluster is served: what its status says, and what of its spec the status leaves out.

A headless service leads to the ports of the pod, which ``status.endpoints`` holds. Of a service with an address of its
own it holds node ports where there are any, so there the ports of the head's container count.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.workloads.ray import RayClusterSpec
from muster.model.elastic import HeadService

PORTS = {"gcs-server": 6379, "dashboard": 8265}
"""{port: what it is where nothing is said}"""
TRUE = ("1", "true")
MOST = 65_535


def served_at(cluster: str, spec: RayClusterSpec, head: object, endpoints: object) -> HeadService | None:
    """``cluster``: its name; ``head`` and ``endpoints``: of its status, of any shape. None: as usual."""
    said = head if isinstance(head, dict) else {}
    name = said.get("serviceName")
    own = isinstance(name, str) and name not in ("", f"{cluster}-head-svc")
    headless = said.get("serviceIP", "") == said.get("podIP", "")
    ports = {**_container_ports(spec), **(_ports(endpoints) if headless else {})}
    params = spec.head_group_spec.ray_start_params or {}
    found = HeadService(
        name=str(name)[:253] if own else "",
        gcs=ports.get("gcs-server", PORTS["gcs-server"]),
        dashboard=0 if _is(params.get("include-dashboard"), "false") else ports.get("dashboard", PORTS["dashboard"]),
        tls=_tls(spec),
    )
    return found if found != HeadService() else None


def _ports(endpoints: object) -> dict[str, int]:
    return {name: port for name in PORTS if (port := _port(endpoints, name))} if isinstance(endpoints, dict) else {}


def _port(endpoints: Mapping[object, object], name: str) -> int:
    text = str(endpoints.get(name, ""))[:6]
    return int(text) if text.isascii() and text.isdigit() and int(text) <= MOST else 0


def _container_ports(spec: RayClusterSpec) -> dict[str, int]:
    containers = spec.head_group_spec.template.spec.containers
    ports = (containers[0].ports if containers else None) or ()
    return {each.name: each.container_port for each in ports if each.name in PORTS and 0 < each.container_port <= MOST}


def _tls(spec: RayClusterSpec) -> bool:
    """Whether the gRPC of its head speaks TLS: by the environment of the head, or by KubeRay's own option."""
    if isinstance(spec.tls_options, dict) and spec.tls_options.get("enabled") is True:
        return True
    containers = spec.head_group_spec.template.spec.containers
    env = containers[0].env if containers else None
    entries = [each for each in env if isinstance(each, dict)] if isinstance(env, list) else []
    return any(each.get("name") == "RAY_USE_TLS" and _is(each.get("value"), *TRUE) for each in entries)


def _is(value: object, *words: str) -> bool:
    return str(value).strip().lower() in words
