"""``muster nats keys``."""

from __future__ import annotations

import base64
import os
from typing import Annotated, Any

from cyclopts import Parameter

from muster.events.subjects import DEFAULT_CELL


async def nats_keys(
    *,
    namespace: Annotated[str, Parameter(help="Namespace of the objects.")] = "muster-system",
    reader: Annotated[tuple[str, ...], Parameter(help="A user that reads public events. Repeatable.")] = ("reader",),
) -> None:
    """Make a key for every user of NATS, as objects of Kubernetes."""
    import nkeys  # type: ignore[import-untyped]
    import yaml

    from muster.runtime.installing import KEYS, secret_of
    from muster.runtime.natsaccounts import muster_users, nkey_setting
    from muster_cli.console import Output

    labels = {"app.kubernetes.io/part-of": "muster"}
    found: list[dict[str, Any]] = []
    lines = []
    for user in (*(each.name for each in muster_users(DEFAULT_CELL)), *reader, "system"):
        pair = nkeys.from_seed(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER))
        lines.append(f'{nkey_setting(user)}: "{pair.public_key.decode()}"\n')
        data = {"seed": base64.b64encode(bytes(pair.seed)).decode()}
        meta = {"name": secret_of(user), "namespace": namespace, "labels": labels}
        found.append({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})
    meta = {"name": KEYS, "namespace": namespace, "labels": labels}
    found.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"keys.conf": "".join(lines)}})
    out = Output()
    for line in yaml.safe_dump_all(found, sort_keys=False).splitlines():
        out.line(line)
