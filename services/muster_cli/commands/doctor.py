"""``muster doctor``."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from muster.core.workloads.registry import KINDS
from muster.kube.errors import KubeConfigError
from muster.ports import ApiStatusError, ApiUnreachableError
from muster.runtime.clock import SystemClock
from muster.runtime.config import ConfigError, load
from muster_cli.api import api_of
from muster_cli.buschecks import bus_findings
from muster_cli.clusterchecks import cluster_findings
from muster_cli.commands.version import nats_server_version
from muster_cli.console import Output
from muster_cli.exits import FAILED, OK
from muster_cli.findings import Finding, must_mend, record
from muster_cli.options import Bus, Cluster, Document
from muster_cli.render.findings import findings_lines, verdict


async def doctor(
    *,
    observe: Annotated[
        bool, Parameter(negative="", help="Ask only for what watching takes; acting needs more.")
    ] = False,
    output: Document = "text",
    cluster: Cluster | None = None,
    bus: Bus | None = None,
) -> int:
    """Say what is missing."""
    findings = [_binary(), *await bus_findings(bus, SystemClock()), *await _cluster(cluster, acting=not observe)]
    out = Output()
    if output == "text":
        out.lines([*findings_lines(findings), verdict(findings)])
    else:
        out.data(record(findings), output)
    return FAILED if must_mend(findings) else OK


def _binary() -> Finding:
    version = nats_server_version()
    if version:
        return Finding("ok", "nats-server", f"{version}, for `muster up`")
    return Finding("note", "nats-server", "not found: `muster up` needs it", "install the extra kube-muster[local]")


def _kinds() -> tuple[str, ...]:
    """The kinds that are on; what is wrong with the settings is found elsewhere."""
    try:
        return load().kinds_on
    except ConfigError:
        return tuple(KINDS)


async def _cluster(cluster: Cluster | None, *, acting: bool) -> list[Finding]:
    try:
        async with api_of(cluster) as api:
            if api is None:
                what = "not looked at: none is named and no demo runs"
                return [Finding("note", "cluster", what, "name one with --context")]
            findings = await cluster_findings(api.transport, acting=acting, policies=not api.simulated, kinds=_kinds())
            return [Finding("ok", "cluster", api.name), *findings]
    except (KubeConfigError, ApiUnreachableError, ApiStatusError) as err:
        return [Finding("bad", "cluster", str(err))]
