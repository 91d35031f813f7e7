"""What a job would meet, by the log."""

from __future__ import annotations

from collections.abc import Sequence

from muster.serving.asking import ManifestError, ask, read_job
from muster.serving.scope import EVERYTHING, Lens
from muster.serving.supposed import AskView
from muster.serving.views import moment_of
from muster_cli.console import Output
from muster_cli.exits import USAGE, CliError
from muster_cli.folding import read_at
from muster_cli.manifests import Manifest
from muster_cli.options import Source


async def asked(source: Source | None, out: Output, at: str, file: str, manifests: Sequence[Manifest]) -> list[AskView]:
    """An answer for each manifest of a file. Raises CliError."""
    try:
        workloads = [read_job(manifest.body) for manifest in manifests]
    except ManifestError as err:
        raise CliError(f"{file}: {err}", USAGE) from err
    read = await read_at(source, out, at)
    now = max(read.present, read.state.now)
    moment, lens = moment_of(read.state, now, live=not at), Lens(EVERYTHING, read.state)
    return [ask(read.state, lens, moment, workload, now) for workload in workloads]
