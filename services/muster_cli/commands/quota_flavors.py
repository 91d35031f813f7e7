"""``muster quota flavors``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from msgspec.json import decode

from muster.core.quota.trees.rules import flavors_written
from muster.model.language import say
from muster_cli.api import api_of
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, OK, CliError
from muster_cli.levers import NO_CLUSTER
from muster_cli.options import ClusterOption, Document
from muster_cli.resourceflavors import KIND, flavors_of, in_cluster, in_file


async def _of_cluster(cluster: ClusterOption | None) -> Sequence[Mapping[str, Any]]:
    async with api_of(cluster) as api:
        if api is None:
            raise CliError(NO_CLUSTER, NOT_FOUND)
        bodies = await in_cluster(api.transport)
        if not bodies:
            raise CliError(say("{cluster} has no objects of kind {kind}", cluster=api.name, kind=KIND), NOT_FOUND)
        return bodies


async def quota_flavors(
    file: Annotated[
        Path | None, Parameter(show_default=False, help="YAML file with the objects. Without it: those of the cluster.")
    ] = None,
    /,
    *,
    output: Document = "text",
    cluster: ClusterOption | None = None,
) -> int:
    """Print ResourceFlavor objects as flavors of a quota tree."""
    bodies = in_file(file) if file is not None else await _of_cluster(cluster)
    out, written = Output(), flavors_written(flavors_of(bodies))
    if output == "text":
        out.line(written)
    else:
        out.data(decode(written), output)
    return OK
