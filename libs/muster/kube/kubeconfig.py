"""Reads kubeconfig files as kubectl does and picks a context.

Done here because kubernetes-asyncio merges several files differently (the last current-context wins), fails without a
user, and prefers a token to a tokenFile. kubernetes-asyncio gets a document with one context and absolute paths.
Imports nothing heavy: the CLI completes context names with this module.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from muster.kube.errors import KubeConfigError
from muster.model.language import say

DEFAULT_PATH = "~/.kube/config"
_NAMES_SHOWN = 20
_PATH_FIELDS = {
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
}
_SECTIONS = {"clusters": "cluster", "contexts": "context", "users": "user"}


class Kubeconfig(Struct, frozen=True):
    """Several files as one; of two entries with the same name the first counts, as of two current contexts."""

    origin: str
    """The files, as the user would name them."""
    current: str
    clusters: dict[str, dict[str, Any]]
    contexts: dict[str, dict[str, Any]]
    users: dict[str, dict[str, Any]]


class ContextChoice(Struct, frozen=True):
    """One context, resolved."""

    context: str
    namespace: str
    server: str
    cluster: dict[str, Any]
    user: dict[str, Any]
    """Empty for an anonymous user."""

    def document(self) -> dict[str, Any]:
        """A kubeconfig with this context only; shares the user's settings, so what is written there stays."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "chosen",
            "contexts": [{"name": "chosen", "context": {"cluster": "chosen", "user": "chosen"}}],
            "clusters": [{"name": "chosen", "cluster": self.cluster}],
            "users": [{"name": "chosen", "user": self.user}],
        }


def locate(path: str, environ: Mapping[str, str]) -> list[Path]:
    """The files to read: ``path`` if given, else the files of KUBECONFIG, else the default; files need not exist."""
    if path:
        return [Path(path).expanduser()]
    listed = [part for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return [Path(part).expanduser() for part in listed or [DEFAULT_PATH]]


def read(paths: Sequence[Path]) -> Kubeconfig:
    """Merge the files; missing files are skipped unless all are missing.

    Raises KubeConfigError without a file, for an unreadable file, and for a file that is no kubeconfig.
    """
    origin = ", ".join(str(path) for path in paths)
    existing = [path for path in paths if path.exists()]
    if not existing:
        raise KubeConfigError(
            say(
                "cannot find a kubeconfig: {origin} does not exist; name one with --kubeconfig or KUBECONFIG",
                origin=origin,
            )
        )
    merged = Kubeconfig(origin, "", {}, {}, {})
    current = ""
    for path in existing:
        parsed = _parse(path)
        current = current or str(parsed.get("current-context") or "")
        for section, inner in _SECTIONS.items():
            entries: dict[str, dict[str, Any]] = getattr(merged, section)
            for name, value in _entries(path, parsed, section, inner):
                entries.setdefault(name, value)
    return Kubeconfig(origin, current, merged.clusters, merged.contexts, merged.users)


def choose(config: Kubeconfig, context: str = "") -> ContextChoice:
    """The named context, or the current context. Raises KubeConfigError with every fault of the context."""
    name = context or config.current
    if not name:
        raise KubeConfigError(
            say(
                "cannot choose a context: {origin} has no current one; choose with --context: {names}",
                origin=config.origin,
                names=_names(config),
            )
        )
    if name not in config.contexts:
        raise KubeConfigError(
            say(
                "cannot use context {name}: it is not in {origin}, which has: {names}",
                name=name,
                origin=config.origin,
                names=_names(config),
            )
        )
    chosen = config.contexts[name]
    cluster_name, user_name = str(chosen.get("cluster") or ""), str(chosen.get("user") or "")
    cluster = config.clusters.get(cluster_name, {})
    problems = []
    if cluster_name not in config.clusters:
        problems.append(f"its cluster {cluster_name or '(unnamed)'} is not defined")
    elif not cluster.get("server"):
        problems.append(f"its cluster {cluster_name} has no server")
    if user_name and user_name not in config.users:
        problems.append(f"its user {user_name} is not defined")
    if problems:
        raise KubeConfigError(
            say(
                "cannot use context {name} of {origin}: {problems}",
                name=name,
                origin=config.origin,
                problems=" and ".join(problems),
            )
        )
    user = dict(config.users.get(user_name, {}))
    if user.get("tokenFile"):
        user.pop("token", None)
    server = str(cluster["server"]).rstrip("/")
    return ContextChoice(name, str(chosen.get("namespace") or "default"), server, cluster, user)


def _parse(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as err:
        raise KubeConfigError(
            say("cannot read kubeconfig {path}: {err}", path=path, err=" ".join(str(err).split()))
        ) from err
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise KubeConfigError(
            say(
                "cannot read kubeconfig {path}: it holds no mapping but a {name}",
                path=path,
                name=type(document).__name__,
            )
        )
    return document


def _entries(path: Path, document: dict[str, Any], section: str, inner: str) -> list[tuple[str, dict[str, Any]]]:
    """(name, settings) of a section, with absolute file names."""
    result = []
    for entry in document.get(section) or []:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise KubeConfigError(
                say("cannot read kubeconfig {path}: an entry of {section} has no name", path=path, section=section)
            )
        value = entry.get(inner) or {}
        if not isinstance(value, dict):
            raise KubeConfigError(
                say(
                    "cannot read kubeconfig {path}: {section} {name} is no mapping",
                    path=path,
                    section=section,
                    name=entry["name"],
                )
            )
        settings = {key: item for key, item in value.items() if item is not None}
        for field in _PATH_FIELDS.get(section, ()):
            if settings.get(field):
                settings[field] = str(path.parent.absolute() / Path(str(settings[field])).expanduser())
        plugin = settings.get("exec")
        if isinstance(plugin, dict) and os.sep in str(plugin.get("command") or ""):
            settings["exec"] = {**plugin, "command": str(path.parent.absolute() / str(plugin["command"]))}
        result.append((entry["name"], settings))
    return result


def _names(config: Kubeconfig) -> str:
    names = sorted(config.contexts)
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return (", ".join(names[:_NAMES_SHOWN]) + more) or "none"
