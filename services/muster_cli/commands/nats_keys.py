"""``muster nats keys``."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from muster.events.subjects import DEFAULT_CELL


async def nats_keys(
    *,
    namespace: Annotated[str, Parameter(help="Namespace of the objects.")] = "muster-system",
    reader: Annotated[tuple[str, ...], Parameter(help="A user that reads public events. Repeatable.")] = ("reader",),
    folder: Annotated[
        Path | None, Parameter(help="Write files there instead; keys that are there stay.", show_default=False)
    ] = None,
) -> None:
    """Make a key for every user of NATS, as objects of Kubernetes or as files."""
    import nkeys  # type: ignore[import-untyped]
    import yaml

    from muster.runtime.natsaccounts import KEYS, dashed, muster_users, nkey_setting, render, secret_of
    from muster_cli.console import Output

    out = Output()
    accounts = render(DEFAULT_CELL, dict.fromkeys(reader, ""))
    if folder is not None and (folder / "server" / "keys.conf").exists():
        (folder / "server" / "accounts.conf").write_text(accounts)
        out.line(f"The keys in {folder} stay as they are")
        return
    labels = {"app.kubernetes.io/part-of": "muster"}
    found: list[dict[str, Any]] = []
    lines, seeds = [], {}
    for user in (*(each.name for each in muster_users(DEFAULT_CELL)), *reader, "system"):
        pair = nkeys.from_seed(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER))
        lines.append(f'{nkey_setting(user)}: "{pair.public_key.decode()}"\n')
        seeds[user] = bytes(pair.seed)
        data = {"seed": base64.b64encode(seeds[user]).decode()}
        meta = {"name": secret_of(user), "namespace": namespace, "labels": labels}
        found.append({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})
    if folder is not None:
        files = {f"{dashed(user)}/seed": seed for user, seed in seeds.items()}
        files["server/accounts.conf"] = accounts.encode()
        files["server/keys.conf"] = "".join(lines).encode()  # The last one: with it the folder is complete.
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        out.line(f"Keys for {len(seeds)} users of NATS are in {folder}")
        return
    meta = {"name": KEYS, "namespace": namespace, "labels": labels}
    found.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"keys.conf": "".join(lines)}})
    for line in yaml.safe_dump_all(found, sort_keys=False).splitlines():
        out.line(line)
