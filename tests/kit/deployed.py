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


def objects(folder: str) -> list[Object]:
    """Every object of a folder, in the order in which kubectl applies it."""
    files = sorted(path for path in (FOLDER / folder).glob("*.yaml") if path.name != "kustomization.yaml")
    return [found for path in files for found in yaml.safe_load_all(path.read_text())]


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
