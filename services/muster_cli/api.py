"""Connections to an API server: a real one by context, or the simulated one of a running demo."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import yaml
from msgspec import Struct

from muster.kube.transport import KubeTransport, Target
from muster_cli import instances
from muster_cli.exits import NOT_FOUND, CliError
from muster_cli.options import Cluster


class Api(Struct, frozen=True):
    """An open connection. ``name``: what it leads to, for people."""

    transport: KubeTransport
    name: str
    simulated: bool


@contextlib.asynccontextmanager
async def api_of(cluster: Cluster | None, *, simulated_only: bool = False) -> AsyncIterator[Api | None]:
    """The cluster a command line names, else that of the newest running ``muster up``; None when there is neither.

    ``simulated_only``: of running ones, only those with a simulated cluster. Raises KubeConfigError, CliError.
    """
    cluster = cluster or Cluster()
    if cluster.context is not None or cluster.kubeconfig is not None:
        transport, name, simulated = await _real(cluster), "", False
    else:
        instance = next((each for each in instances.running() if each.simulated or not simulated_only), None)
        if instance is None:
            yield None
            return
        if instance.simulated:
            transport, name, simulated = _demo(Path(instance.kubeconfig)), "the running demo", True
        else:
            transport = await _real(Cluster(instance.context or None, instance.kubeconfig or None))
            name, simulated = "", False
    try:
        yield Api(transport, name or f"{transport.target.server} ({transport.target.origin})", simulated)
    finally:
        await transport.close()


async def _real(cluster: Cluster) -> KubeTransport:
    from muster.kube.config import connect
    from muster.kube.sources import FromKubeconfig
    from muster.runtime.clock import SystemClock

    source = FromKubeconfig(path=cluster.kubeconfig or "", context=cluster.context or "")
    return await connect(source, check=True, clock=SystemClock())


def _demo(kubeconfig: Path) -> KubeTransport:
    """Plain HTTP on loopback needs nothing of what kubernetes-asyncio takes seconds to import."""
    import aiohttp

    from muster.kube.credentials import Credential, Loaded
    from muster.kube.transport import Wire

    try:
        server = str(yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"])
    except (OSError, LookupError, TypeError, yaml.YAMLError) as err:
        raise CliError(f"cannot use the kubeconfig of the running demo, {kubeconfig}: {err}", NOT_FOUND) from err
    connector = aiohttp.TCPConnector()
    wire = Wire(connector=connector, close=connector.close)
    return KubeTransport(Target(server, "the running demo"), wire, Credential(Loaded(None)), user_agent="muster")
