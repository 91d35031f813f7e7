"""What a kind of a platform team needs in the cluster: its definition, rights, policies, and a subject of NATS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from muster.core.workloads.definition import Definition
from muster.core.workloads.registry import KINDS, defined
from muster.events.subjects import DEFAULT_CELL
from muster.model.language import say
from muster.runtime import kinds
from muster_cli.exits import USAGE, VIOLATED, CliError
from muster_cli.kindlists import relisted
from muster_cli.policychecks import CONTROLLERS
from muster_cli.rolechecks import ACTUATOR, SYSTEM, WATCHER, Account

Object = dict[str, Any]


def read_kinds(files: Sequence[Path]) -> list[Definition]:
    """The definitions of files, known to this process from now on. Raises CliError naming file, field and way out."""
    if not files:
        raise CliError(say("name a file with a definition"), USAGE)
    definitions = []
    for path in files:
        for name, text in _texts(path):
            try:
                definition = kinds.read(text)
                kinds.define(definition)
            except kinds.KindError as err:
                raise CliError(f"{name}: {err}", VIOLATED) from err
            definitions.append(definition)
    return definitions


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """(name, text) of each definition in a file, or in the ConfigMap of a file."""
    try:
        text = path.read_text()
        document = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as err:
        raise CliError(
            say("{path} cannot be read as YAML: {error}", path=path, error=" ".join(str(err).split())[:200]), USAGE
        ) from err
    if isinstance(document, dict) and document.get("kind") == "ConfigMap":
        yield from ((f"{path}, {key}", str(value)) for key, value in (document.get("data") or {}).items())
    else:
        yield str(path), text


def rendered(definitions: Sequence[Definition], policies: Path) -> str:
    """The manifests, for a server-side apply by force. Raises CliError without the policies."""
    if not policies.is_dir():
        raise CliError(
            say(
                "{policies} is no folder: name the policies of the installed version with --policies", policies=policies
            ),
            USAGE,
        )
    names = [definition.kind for definition in definitions]
    texts = {path: path.read_text() for path in sorted(policies.glob("*.yaml"))}
    renewed = [relisted(text) for text in texts.values() if relisted(text) != text]
    subjects = [f"muster.log.{DEFAULT_CELL}.*.watcher.{KINDS[name].resource.plural}" for name in names]
    head = [
        f"# Apply with `kubectl apply --server-side --force-conflicts --field-manager {kinds.NAME} -f -`, a manager",
        "# of its own: the accounts of other kinds stay. Then the services read the definitions:",
        f"# kubectl -n {SYSTEM} rollout restart deployment",
        "# In deploy/nats/accounts.conf the watcher may publish to one subject more for each kind:",
        *(f"#   {subject}" for subject in subjects),
    ]
    made = [yaml.safe_dump(manifest, sort_keys=False, width=1000) for manifest in _objects(definitions)]
    return "\n".join(head) + "\n" + "---\n".join([*made, *renewed])


def _objects(definitions: Sequence[Definition]) -> Iterator[Object]:
    names = [definition.kind for definition in definitions]
    data = {f"{kind.lower()}.yaml": text + "\n" for kind, text in defined(names).items()}
    yield _object("v1", "ConfigMap", kinds.NAME, SYSTEM, data=data)
    accounts = {str(KINDS[row.kind].resource): " ".join(row.controllers) for row in definitions}
    yield _object("v1", "ConfigMap", CONTROLLERS, SYSTEM, data=accounts)
    for account, verbs in ((WATCHER, ["get", "list", "watch"]), (ACTUATOR, ["get", "patch"])):
        yield from _role(account, verbs, names)


def _role(account: Account, verbs: list[str], names: Sequence[str]) -> Iterator[Object]:
    name, group = f"{account.name}-kinds", "rbac.authorization.k8s.io"
    rows = [KINDS[kind].resource for kind in names]
    rules = [{"apiGroups": [row.group], "resources": [row.plural], "verbs": [*verbs]} for row in rows]
    yield _object(f"{group}/v1", "ClusterRole", name, rules=rules)
    subject = {"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": name}
    yield _object(f"{group}/v1", "ClusterRoleBinding", name, roleRef=role, subjects=[subject])


def _object(version: str, kind: str, name: str, namespace: str = "", **more: object) -> Object:
    where = {"namespace": namespace} if namespace else {}
    meta = {"name": name, **where, "labels": {"app.kubernetes.io/part-of": "muster"}}
    return {"apiVersion": version, "kind": kind, "metadata": meta, **more}
