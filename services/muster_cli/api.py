"""Connections to an API server: a real one by context, or the simulated one of a running demo."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from muster.kube import kubeconfig
from muster.model.language import say
from muster.runtime.config import load_with_origins
from muster.runtime.pairing import cluster_uid, recorded_cluster
from muster_cli import instances
from muster_cli.exits import NOT_FOUND, CliError
from muster_cli.options import ClusterOption
from muster_cli.reading import LogPlace, LogReading

if TYPE_CHECKING:
    from muster.kube.transport import KubeTransport


class Api(Struct, frozen=True):
    """An open connection. ``name``: the cluster's name for people."""

    transport: KubeTransport
    name: str
    simulated: bool


@contextlib.asynccontextmanager
async def api_of(
    cluster: ClusterOption | None, place: LogPlace | None = None, *, simulated_only: bool = False
) -> AsyncIterator[Api | None]:
    """The cluster that a command line names, else the cluster of the log; None without either.

    ``place``: the log. The log of a running ``muster up`` goes with the cluster of that instance, any other log with
    the
    kubeconfig of the shell (KUBECONFIG, else ~/.kube/config). Without a log: the cluster of the newest instance.
    ``simulated_only``: of running instances, only instances with a simulated cluster; the one that a setting
    (MUSTER_NATS_URL) names, where there is such a setting. Raises KubeConfigError, CliError.
    """
    cluster = cluster or ClusterOption()
    if cluster.context is not None or cluster.kubeconfig is not None:
        transport, name, simulated = await real_api(cluster), "", False
    else:
        instance = _instance(place, simulated_only=simulated_only)
        if instance is None:
            if place is None or not _has_kubeconfig():
                yield None
                return
            transport, name, simulated = await real_api(cluster), "", False
        elif instance.simulated:
            transport, name, simulated = _demo(Path(instance.kubeconfig)), _instance_text(instance), True
        else:
            transport = await real_api(ClusterOption(instance.context or None, instance.kubeconfig or None))
            name, simulated = "", False
    try:
        yield Api(transport, name or f"{transport.target.server} ({transport.target.origin})", simulated)
    finally:
        await transport.close()


def _instance_text(instance: instances.Instance) -> str:
    return say("the simulated cluster of `muster up` at {url}", url=instance.url)


def _instance(place: LogPlace | None, *, simulated_only: bool) -> instances.Instance | None:
    if place is not None:
        return place.instance
    config, origins = load_with_origins()
    running = [instance for instance in instances.running() if instance.simulated or not simulated_only]
    if not simulated_only or "nats_url" not in origins:
        return next(iter(running), None)
    named = next((instance for instance in running if instance.url == config.nats_url), None)
    if named is None:
        raise CliError(
            say(
                "{setting} names {url}, and no demo here has this log: name its cluster with --context, "
                "or take the setting away",
                setting=origins["nats_url"],
                url=config.nats_url,
            ),
            NOT_FOUND,
        )
    return named


def _has_kubeconfig(environ: Mapping[str, str] = os.environ) -> bool:
    return bool(environ.get("KUBECONFIG")) or Path(kubeconfig.DEFAULT_PATH).expanduser().exists()


async def check_pair(reading: LogReading, api: Api) -> None:
    """Raises CliError when a log is about another cluster than the connection."""
    wrong = await mismatch(reading, api)
    if wrong:
        raise CliError(
            say(
                "{wrong}; nothing was changed. Name the cluster of this log with --context or "
                "--kubeconfig, or the log of that cluster with --url",
                wrong=wrong,
            )
        )


async def mismatch(reading: LogReading, api: Api) -> str:
    """Why a log and a cluster do not belong together; empty when both do, or when the answer is unknown."""
    known = await recorded_cluster(reading.js, reading.log.identity)
    if known is None:
        return ""
    uid = await cluster_uid(api.transport)
    if not uid or uid == (known.uid or uid):
        return ""
    identity = reading.log.identity
    log = say(
        "log {log_id} of cell {cell} at {nats_url}",
        log_id=identity.log_id,
        cell=identity.cell,
        nats_url=reading.place.config.nats_url,
    )
    return say(
        "{log} is about another cluster ({server}, id {uid}) than {name}, id {other}",
        log=log,
        server=known.server or say("simulated"),
        uid=known.uid,
        name=api.name,
        other=uid,
    )


async def real_api(cluster: ClusterOption, user: str = "", groups: tuple[str, ...] = ()) -> KubeTransport:
    """A connection to a real cluster. ``user``, ``groups``: another user to act as. Raises KubeConfigError."""
    from muster.kube.config import connect
    from muster.kube.sources import FromKubeconfig
    from muster.runtime.clock import SystemClock

    source = FromKubeconfig(cluster.kubeconfig or "", cluster.context or "", user, groups)
    return await connect(source, check=True, clock=SystemClock())


def _demo(path: Path) -> KubeTransport:
    """Plain HTTP on loopback needs no kubernetes-asyncio, which takes seconds to import."""
    import aiohttp
    import yaml

    from muster.kube.credentials import Credential, Loaded
    from muster.kube.transport import ApiTarget, KubeTransport, Wire

    try:
        server = str(yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"])
    except (OSError, LookupError, TypeError, yaml.YAMLError) as err:
        raise CliError(
            say("cannot use the kubeconfig of the running demo, {path}: {err}", path=path, err=err), NOT_FOUND
        ) from err
    connector = aiohttp.TCPConnector()
    wire = Wire(connector=connector, close=connector.close)
    return KubeTransport(
        ApiTarget(server, say("the running demo")), wire, Credential(Loaded(None)), user_agent="muster"
    )
