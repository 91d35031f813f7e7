"""``muster uninstall``."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from cyclopts import Parameter

from muster.model.keys import Ref
from muster.model.language import listed, say
from muster.model.text import counted
from muster_cli import instances
from muster_cli.api import Api, api_of
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, CliError
from muster_cli.levers import NO_CLUSTER
from muster_cli.options import ClusterOption
from muster_cli.owners import own_deployments
from muster_cli.removal import leftovers, remove

LISTED = 50


async def uninstall(
    *,
    yes: Annotated[bool, Parameter(negative="", help="Do it; without this it only says what it would do.")] = False,
    cluster: ClusterOption | None = None,
) -> None:
    """Take from a cluster what Muster made there."""
    out = Output()
    async with api_of(cluster) as api:
        if api is None:
            raise CliError(say(NO_CLUSTER), NOT_FOUND)
        left, running = await leftovers(api.transport), await _still_running(api)
        out.line(say("On {name}:", name=api.name))
        _list(
            out,
            say(
                "{jobs} waiting, staying suspended until they are resumed by hand",
                jobs=counted(len(left.waiting), "job"),
            ),
            left.waiting,
        )
        _list(out, say("{jobs} admitted by Muster, running on", jobs=counted(len(left.running), "job")), left.running)
        kinds = Counter(ref.kind for _, ref in left.ours)
        units, queues, groups = (counted(kinds[kind], kind) for kind in ("QueueUnit", "Queue", "PodGroup"))
        made = say("{units}, {queues} and {groups}", units=units, queues=queues, groups=groups)
        if not yes:
            out.line(say("Would remove {made} and nothing else; --yes does it", made=made))
            if running:
                out.line(say("First stop what would make them again: {running}", running=running))
            return
        if running:
            raise CliError(
                say("Muster still runs here and would make everything again; first stop {running}", running=running)
            )
        removed = [await remove(api.transport, resource, ref) for resource, ref in left.ours]
        out.line(
            f"Removed {made}" + ("" if all(removed) else say("; {gone} were gone already", gone=removed.count(False)))
        )
        out.line(say("Quota trees, definitions, roles, policies and annotations on jobs stay; so does the log in NATS"))


def _list(out: Output, title: str, refs: list[Ref]) -> None:
    out.line(title)
    for ref in sorted(refs, key=lambda ref: (ref.key, ref.kind))[:LISTED]:
        out.line(f"  {ref.kind} {ref.key}")
    if len(refs) > LISTED:
        out.line("  " + say("and {number} more", number=len(refs) - LISTED))


async def _still_running(api: Api) -> str:
    """What of Muster runs on this cluster; empty when nothing does."""
    deployed = [f"deployment {name}" for name in await own_deployments(api.transport)]
    local = [instance for instance in instances.running() if instance.acting and _is_of(instance, api)]
    return listed(
        [*deployed, *(say("`muster up` with pid {pid} (`muster down`)", pid=instance.pid) for instance in local)]
    )


def _is_of(instance: instances.Instance, api: Api) -> bool:
    """Whether a running instance acts on this cluster, as far as its context tells."""
    if api.simulated or instance.simulated:
        return api.simulated and instance.simulated
    return not instance.context or f"context {instance.context} " in f"{api.transport.target.origin} "
