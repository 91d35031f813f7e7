"""``muster login``."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Annotated

import msgspec
import yaml
from cyclopts import Parameter

from muster.bus.cell import open_log
from muster.bus.errors import BusError
from muster.bus.jetstream import JetStream
from muster.model.api import CONFIG_MAPS, ApiResource
from muster.model.language import say
from muster.ports import ApiTransport, LogGoneError
from muster.runtime.clusterlease import NAMESPACE
from muster.runtime.config import Config
from muster.runtime.natsaccounts import API, inbox, secret_of
from muster.runtime.pairing import cluster_uid, recorded_cluster
from muster_cli.api import real_api
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, CliError
from muster_cli.options import ClusterOption
from muster_cli.reading import LogPlace, connected

SECRETS = ApiResource("", "v1", "secrets", "Secret")
TLS = "muster-nats-tls"
"""Secret with the certificate of NATS. The Secret holds the key of the servers too, so users do not read the Secret."""
AUTHORITY = "muster-nats-ca"
"""ConfigMap with the CA alone."""
LOCAL = "nats://127.0.0.1:4222"


async def login(
    *,
    user: Annotated[
        str, Parameter(help="The user of NATS to sign in as: cli reads, admin looks after the log.")
    ] = "cli",
    address: Annotated[
        str, Parameter(help="Where NATS is reached: a port-forward on this machine, or an address of yours.")
    ] = LOCAL,
    server_name: Annotated[
        str | None, Parameter(show_default=False, help="Name in its certificate. Without it: nats.NAMESPACE.svc.")
    ] = None,
    namespace: Annotated[str, Parameter(help="Namespace of Muster.")] = NAMESPACE,
    folder: Annotated[
        Path | None, Parameter(show_default=False, help="Where to keep it. Without it: ~/.config/muster.")
    ] = None,
    cluster: ClusterOption | None = None,
) -> None:
    """Fetch what the command line needs to reach the log of an installed Muster."""
    out, transport = Output(), await real_api(cluster or ClusterOption())
    try:
        uid = await cluster_uid(transport)
        seed = base64.b64decode(await _read(transport, SECRETS, namespace, secret_of(user), "seed"))
        authority = await _authority(transport, namespace)
    finally:
        await transport.close()
    home = folder or Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "muster"
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    key, ca, file = home / f"{user}.seed", home / "ca.pem", home / f"{user}.yaml"
    settings = {
        "nats_url": address,
        "nats_nkey_file": str(key),
        "nats_ca_file": str(ca),
        "nats_server_name": server_name or f"nats.{namespace}.svc",
        "nats_inbox_prefix": inbox(user),
        "nats_api_prefix": API,
    }
    for path, content in ((key, seed), (ca, authority.encode()), (file, yaml.safe_dump(settings).encode())):
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(content)
    out.line(say("The key of {user} and the CA are in {home}. In this shell:", user=user, home=home))
    out.line(f"  export MUSTER_CONFIG={file}")
    try:
        place = LogPlace(msgspec.convert(settings, Config))
        async with connected(place) as js:
            for line in await whose(js, place.config.cell, uid):
                out.line(line)
            out.line(say("NATS answers at {address}: `muster queue tree` shows the queues", address=address))
    except BusError as err:
        if address != LOCAL:
            raise CliError(say("{err}; what was fetched stays in {home}", err=err, home=home)) from err
        out.line(say("NATS does not answer at {address} yet. In another shell:", address=address))
        out.line(f"  kubectl -n {namespace} port-forward service/nats 4222")


async def whose(js: JetStream, cell: str, uid: str) -> list[str]:
    """Whose server answers: its certificate, the cell, and the cluster of the cell. ``uid``: of the cluster that gave
    the key, empty where the user may not read the uid. Raises CliError where the cell belongs to another cluster.
    """
    lines = [say("  certificate SHA-256 {fingerprint}", fingerprint=js.connection.fingerprint or say("(no TLS)"))]
    try:
        identity = (await open_log(js, cell)).identity
    except LogGoneError:
        return [*lines, say("  cell {cell}: no log yet", cell=cell)]
    lines.append(
        say(
            "  cell {cell}: log {log_id}, generation {generation}",
            cell=cell,
            log_id=identity.log_id,
            generation=identity.generation,
        )
    )
    known = await recorded_cluster(js, identity)
    if known is None or not known.uid:
        return lines
    server = known.server or "simulated"
    if uid and known.uid != uid:
        raise CliError(
            say(
                "the NATS at this address belongs to cluster {server}, uid {uid}, and the key came from "
                "the cluster with uid {own}: name the right --address, or the right --context",
                server=server,
                uid=known.uid,
                own=uid,
            )
        )
    return [*lines, say("  cluster {server}, uid {uid}", server=server, uid=known.uid)]


async def _authority(transport: ApiTransport, namespace: str) -> str:
    """The CA of NATS: from the ConfigMap, else, for users with the right, from the Secret of the servers."""
    answer = await transport.request("GET", CONFIG_MAPS.path(namespace, AUTHORITY))
    if answer.ok:
        return str((msgspec.json.decode(answer.body).get("data") or {}).get("ca.crt", ""))
    return base64.b64decode(await _read(transport, SECRETS, namespace, TLS, "ca.crt")).decode()


async def _read(transport: ApiTransport, resource: ApiResource, namespace: str, name: str, key: str) -> str:
    answer = await transport.request("GET", resource.path(namespace, name))
    document = msgspec.json.decode(answer.body)
    if answer.ok and key in (document.get("data") or {}):
        return str(document["data"][key])
    if answer.status == 403:
        way = say(
            "Role {namespace}/muster-reader gives the key of user cli; others are for administrators",
            namespace=namespace,
        )
        raise CliError(
            say(
                "{kind} {namespace}/{name} cannot be read: {message}; {way}",
                kind=resource.kind,
                namespace=namespace,
                name=name,
                message=document.get("message", ""),
                way=way,
            )
        )
    why = say("it has no {key}", key=key) if answer.ok else say("there is none")
    raise CliError(
        say(
            "{kind} {namespace}/{name}: {why}; `muster nats keys` makes the keys",
            kind=resource.kind,
            namespace=namespace,
            name=name,
            why=why,
        ),
        NOT_FOUND,
    )
