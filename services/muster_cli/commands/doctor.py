"""``muster doctor``."""

from __future__ import annotations

import asyncio
from typing import Annotated

from cyclopts import Parameter

from muster.bus.cell import own_genesis
from muster.bus.errors import BusError, UnansweredError
from muster.core.workloads.registry import KINDS
from muster.kube.errors import KubeConfigError
from muster.model.language import say
from muster.ports import ApiStatusError, ApiUnreachableError, LogGoneError
from muster.runtime.clock import SystemClock
from muster.runtime.clusterlease import holder_of
from muster.runtime.config import ConfigError, load
from muster.runtime.pairing import PATIENCE_S, recorded_cluster
from muster.runtime.witness import CellRecord, RecordRefusedError, lacking
from muster_cli.api import Api, api_of, mismatch, real_api
from muster_cli.buschecks import bus_findings
from muster_cli.clusterchecks import cluster_findings
from muster_cli.console import Output
from muster_cli.exits import FAILED, NOT_FOUND, OK, USAGE, CliError
from muster_cli.findings import Finding, must_fix, record
from muster_cli.kindchecks import kind_findings, learn
from muster_cli.options import Bus, ClusterOption, Document
from muster_cli.podchecks import pod_findings
from muster_cli.reading import LogPlace, LogReading, locate, opened
from muster_cli.render.findings import findings_lines, verdict
from muster_cli.rolechecks import role_findings
from muster_cli.subjects import subject_findings
from muster_cli.toolchecks import tool_findings
from muster_cli.treechecks import foreign_leaf, tree_findings


async def doctor(
    *,
    observe: Annotated[bool, Parameter(negative="", help="Check only the rights to watch; acting needs more.")] = False,
    attack: Annotated[
        bool,
        Parameter(negative="", help="Also try to pass by the queue, as the user of --as; dry runs, nothing is stored."),
    ] = False,
    as_user: Annotated[str, Parameter(name="--as", show_default=False, help="The user that --attack acts as.")] = "",
    as_group: Annotated[tuple[str, ...], Parameter(show_default=False, help="A group of that user. Repeatable.")] = (),
    namespace: Annotated[
        str, Parameter(name=["--namespace", "-n"], show_default=False, help="Where --attack tries it.")
    ] = "",
    output: Document = "text",
    cluster: ClusterOption | None = None,
    bus: Bus | None = None,
) -> int:
    """Say what is missing."""
    if attack != bool(as_user and namespace) or (as_group and not attack):
        text = say("--attack, --as USER and --namespace NAME go together: a user with the right to edit jobs there")
        raise CliError(text, USAGE)
    place, findings = _place(bus, cluster)
    log, api = await bus_findings(place, SystemClock()), await _cluster(cluster, place, acting=not observe)
    findings = [
        *await tool_findings(),
        *findings,
        *log,
        *(finding for finding in api if finding.title not in {bad.title for bad in log}),
    ]
    examined = any(finding.grade != "note" for finding in (*log, *api))
    if attack:
        findings += await _attack(cluster or ClusterOption(), as_user, as_group, namespace)
    out = Output()
    if output == "text":
        out.lines([*findings_lines(findings), verdict(findings, examined=examined)])
    else:
        out.data(record(findings, examined=examined), output)
    if must_fix(findings):
        return FAILED
    return OK if examined else NOT_FOUND


def _place(bus: Bus | None, cluster: ClusterOption | None) -> tuple[LogPlace | None, list[Finding]]:
    """The wanted log. The log of an instance of `muster up` is not wanted where the command names another cluster."""
    try:
        place = locate(bus)
    except CliError:
        return None, []
    cluster = cluster or ClusterOption()
    named = cluster.context is not None or cluster.kubeconfig is not None
    if not named or place.instance is None or (bus is not None and bus.url is not None):
        return place, []
    instance = place.instance
    same = (cluster.context or instance.context, cluster.kubeconfig or instance.kubeconfig)
    if not instance.simulated and same == (instance.context, instance.kubeconfig):
        return place, []
    detail = say("not examined: the log at {url} is that of a `muster up` on another cluster", url=instance.url)
    return None, [Finding("note", say("log"), detail, say("name the log of this cluster with --url nats://HOST:PORT"))]


def _settings() -> tuple[tuple[str, ...], bool]:
    """The enabled kinds, and whether kube-scheduler places gangs; other checks find errors in the settings."""
    try:
        config = load()
    except ConfigError:
        return tuple(KINDS), False
    return config.kinds_on, config.placement == "native"


async def _cluster(cluster: ClusterOption | None, place: LogPlace | None, *, acting: bool) -> list[Finding]:
    try:
        async with api_of(cluster, place) as api:
            if api is None:
                detail = say("not examined: no cluster is named and no `muster up` runs")
                return [
                    Finding("note", say("cluster"), detail, say("name one with --context NAME or --kubeconfig FILE"))
                ]
            pair, ours = await _pair(place, api)
            await learn(api.transport)
            kinds, native = _settings()
            findings = await cluster_findings(
                api.transport, acting=acting, policies=not api.simulated, kinds=kinds, ours=ours, native=native
            )
            roles = await role_findings(api.transport, kinds)
            trees = await tree_findings(api.transport, policies=not api.simulated)
            pods = [] if api.simulated else await pod_findings(api.transport, SystemClock())
            subjects = [] if api.simulated else await subject_findings(api.transport)
            defined = await kind_findings(api.transport)
            return [
                Finding("ok", say("cluster"), api.name),
                *pair,
                *pods,
                *findings,
                *defined,
                *roles,
                *subjects,
                *trees,
            ]
    except (KubeConfigError, ApiUnreachableError, ApiStatusError) as err:
        return [Finding("bad", say("cluster"), str(err), "kubectl config get-contexts")]


async def _attack(cluster: ClusterOption, user: str, groups: tuple[str, ...], namespace: str) -> list[Finding]:
    """Attempts of a user to pass by the queue."""
    from muster_cli.attacks import attack_findings

    try:
        async with api_of(cluster) as api:
            leaf = await foreign_leaf(api.transport, namespace) if api is not None and not api.simulated else ""
        transport = await real_api(cluster, user, groups)
        try:
            return await attack_findings(transport, namespace, leaf, user)
        finally:
            await transport.close()
    except (KubeConfigError, ApiUnreachableError, ApiStatusError) as err:
        return [Finding("bad", say("attack"), str(err), "kubectl config get-contexts")]


async def _lost(reading: LogReading, api: Api) -> str:
    """Why the log is to end: NATS or the cluster was set back."""
    known, identity = await recorded_cluster(reading.js, reading.log.identity), reading.log.identity
    if known is not None and known.set_back:
        return known.set_back
    genesis = await own_genesis(reading.js, identity.cell, identity.generation, identity.first)
    record = await CellRecord(api.transport, identity.cell, SystemClock()).read()
    return await lacking(reading.log, genesis.parent if genesis is not None else "", record) if record else ""


async def _pair(place: LogPlace | None, api: Api) -> tuple[list[Finding], str | None]:
    """Whether the log is about this cluster, and the name under which its Muster acts there; empty without a log, None
    where the log does not tell.
    """
    if place is None:
        return [], ""
    try:
        async with asyncio.timeout(PATIENCE_S), opened(place) as reading:
            wrong, ours = await mismatch(reading, api), holder_of(reading.log.identity)
            lost = "" if wrong else await _lost(reading, api)
    except (BusError, UnansweredError, CliError, LogGoneError, RecordRefusedError, TimeoutError):
        return [], None
    if lost:
        return [Finding("bad", say("log"), lost, say("muster log recover, unless a keeper runs"))], ours
    fix = say("name the cluster of this log with --context, or the log of this cluster with --url")
    return ([Finding("bad", say("pair"), wrong, fix)] if wrong else []), ours
