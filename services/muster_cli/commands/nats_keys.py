"""``muster nats keys``."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from muster.events.subjects import DEFAULT_CELL
from muster.model.language import say


async def nats_keys(
    *,
    namespace: Annotated[str, Parameter(help="Namespace of the objects.")] = "muster-system",
    reader: Annotated[tuple[str, ...], Parameter(help="A user that reads public events. Repeatable.")] = ("reader",),
    layout: Annotated[
        Literal["separate", "deciders", "all"], Parameter(help="Which services share a process, and so a key.")
    ] = "separate",
    folder: Annotated[
        Path | None, Parameter(help="Write files there instead; keys that are there stay.", show_default=False)
    ] = None,
    keys: Annotated[
        Path | None, Parameter(help="The keys.conf of the servers: its keys stay.", show_default=False)
    ] = None,
    rotate: Annotated[
        tuple[str, ...],
        Parameter(help="A user that gets a new key; its key so far is accepted too. Repeatable.", show_default=False),
    ] = (),
    retire: Annotated[
        tuple[str, ...],
        Parameter(help="A user whose key before is accepted no longer. Repeatable.", show_default=False),
    ] = (),
) -> None:
    """Make a key for every user of NATS, or new ones, as objects of Kubernetes or as files."""
    import yaml

    from muster.runtime.layouts import GROUPS, LAYOUTS, SERVICES
    from muster.runtime.natsaccounts import muster_users, render
    from muster.runtime.natskeys import KeyRing, UnknownUserError
    from muster_cli.console import Output
    from muster_cli.exits import NOT_FOUND, USAGE, CliError

    out = Output()
    present = folder / "server" / "keys.conf" if folder is not None else keys
    if keys is not None and not keys.exists():
        raise CliError(say("cannot read the keys of the servers: there is no file {keys}", keys=keys), NOT_FOUND)
    if (rotate or retire) and (present is None or not present.exists()):
        raise CliError(
            say(
                "--rotate and --retire change keys that the servers have: name their keys.conf with "
                "--keys, or the folder that has it with --folder"
            ),
            USAGE,
        )
    users = [*(user.name for user in muster_users(DEFAULT_CELL)), *reader, "system"]
    try:
        unused = {*SERVICES, *GROUPS} - {*LAYOUTS[layout]}
        ring = KeyRing(users, _keys_in(present) if present is not None and present.exists() else "", unused=unused)
        ring.rotate(rotate)
        ring.retire(retire)
    except UnknownUserError as err:
        raise CliError(str(err), USAGE) from err
    if folder is None:
        objects = [*_secrets(ring.seeds, namespace), _public(ring.conf(), namespace)]
        for line in yaml.safe_dump_all(objects, sort_keys=False).splitlines():
            out.line(line)
        return
    _write(folder, ring.seeds, ring.conf(), render(DEFAULT_CELL, dict.fromkeys(reader, "")))
    if ring.seeds:
        out.line(say("Keys for {seeds} users of NATS are in {folder}", seeds=len(ring.seeds), folder=folder))
    else:
        out.line(say("The keys in {folder} stay as they are", folder=folder))


def _keys_in(path: Path) -> str:
    """A keys.conf. Raises CliError where it has no key: there is nothing to keep."""
    from muster.runtime.natskeys import has_keys
    from muster_cli.exits import CliError

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise CliError(say("cannot read {path}: {err}", path=path, err=err)) from err
    if not has_keys(text):
        raise CliError(
            say(
                "{path} has no public key of a user of NATS, as MUSTER_NKEY_WATCHER: U...; it is no keys.conf",
                path=path,
            )
        )
    return text


def _write(folder: Path, seeds: dict[str, bytes], conf: str, accounts: str) -> None:
    from muster.runtime.natsaccounts import dashed

    files = {f"{dashed(user)}/seed": seed for user, seed in seeds.items()}
    files["server/accounts.conf"] = accounts.encode()
    files["server/keys.conf"] = conf.encode()  # The last file: the folder is complete.
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _secrets(seeds: dict[str, bytes], namespace: str) -> Iterator[dict[str, Any]]:
    from muster.runtime.natsaccounts import secret_of

    for user, seed in seeds.items():
        data = {"seed": base64.b64encode(seed).decode()}
        yield {"apiVersion": "v1", "kind": "Secret", "metadata": _meta(secret_of(user), namespace), "data": data}


def _public(conf: str, namespace: str) -> dict[str, Any]:
    """The half for the servers, which need the public keys before a service signs in with the private ones."""
    from muster.runtime.natsaccounts import KEYS

    meta = _meta(KEYS, namespace)
    meta["labels"]["muster.dev/keys"] = "public"
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"keys.conf": conf}}


def _meta(name: str, namespace: str) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "muster"}}
