"""The manifests of deploy/ as tests see them: which objects there are, and which rights they give whom."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

FOLDER = Path(__file__).parents[2] / "deploy"
NAMESPACE = "muster-system"
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

Object = dict[str, Any]


class Right(NamedTuple):
    """One verb on one resource (``queues/status`` for a part of it) of an API group."""

    verb: str
    group: str
    resource: str


def every(text: str) -> list[Object]:
    """The documents of a file, by libyaml: the files of deploy are large, and many tests read them."""
    return [*yaml.load_all(text, Loader=yaml.CSafeLoader)]


def objects(folder: str) -> list[Object]:
    """Every object of a folder, in the order in which kubectl applies it."""
    files = sorted(path for path in (FOLDER / folder).glob("*.yaml") if path.name != "kustomization.yaml")
    return [found for path in files for found in every(path.read_text())]


def shipped_policies() -> dict[tuple[str, str], Object]:
    """{(kind, name): object} of deploy/policies."""
    return {(each["kind"], each["metadata"]["name"]): each for each in objects("policies")}


def of_kind(kind: str, folder: str = "rbac") -> dict[str, Object]:
    """{name: object} of one kind in a folder."""
    return {found["metadata"]["name"]: found for found in objects(folder) if found["kind"] == kind}


def rights(role: Object) -> set[Right]:
    """What a role allows, one by one."""
    return {
        Right(verb, group, resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


ACCOUNTS = ("watcher", "actuator", "gateway")
"""Those that have rights at the API server."""
OWN = ("muster-own-jobs", "muster-own-pods", "muster-own-objects", "muster-pod-deletions")
"""The policies that bind Muster's own accounts."""


def rights_table() -> str:
    """What each account may do, resource by resource, and which policy judges what it writes: for docs/security.md."""
    roles = {name: of_kind("ClusterRole")[f"muster-{name}"] for name in ACCOUNTS}
    found: dict[str, dict[str, list[str]]] = {}
    for name, role in roles.items():
        for rule in role["rules"]:
            only = f" (name {', '.join(rule['resourceNames'])})" if "resourceNames" in rule else ""
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    cells = found.setdefault(f"{resource}{f'.{group}' if group else ''}", {})
                    cells.setdefault(name, []).append(f"{', '.join(rule['verbs'])}{only}")
    judged: dict[str, list[str]] = {}
    for policy in (shipped_policies()["ValidatingAdmissionPolicy", name] for name in OWN):
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    name = policy["metadata"]["name"]
                    judged.setdefault(f"{resource}{f'.{group}' if group else ''}", []).append(f"`{name}`")
    rows = [f"| Resource | {' | '.join(ACCOUNTS)} | Judged by |", f"| --- |{' --- |' * (len(ACCOUNTS) + 1)}"]
    for resource, cells in sorted(found.items()):
        texts = ["; ".join(dict.fromkeys(cells.get(name, []))) for name in ACCOUNTS]
        by = ", ".join(dict.fromkeys(judged.get(resource, ())))
        rows.append(f"| {resource} | {' | '.join(texts)} | {by} |")
    return "\n".join(rows) + "\n"


def account(service: str) -> str:
    """The user name of a service's account."""
    return f"system:serviceaccount:{NAMESPACE}:muster-{service}"


def account_groups() -> tuple[str, ...]:
    """The groups every account of ours is in."""
    return ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}")


def needed(method: str, path: str, query: Iterable[str] = ()) -> Right | None:
    """The right a request needs; None for discovery, which everybody may ask."""
    parts = urlsplit(path).path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if parts[0] not in ("api", "apis") or not rest:
        return None
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    resource, name, part = (*rest, "", "")[:3] if len(rest) < 3 else rest[:3]
    named = f"{resource}/{part}" if part else resource
    if method == "GET":
        return Right("watch" if "watch" in query else "get" if name else "list", group, named)
    return Right(VERBS[method], group, named)


def controllers() -> Object:
    """The ConfigMap of the accounts that the policies trust, as it is shipped."""
    [found] = [each for each in objects("rbac") if each["metadata"]["name"] == "muster-controllers"]
    return found
