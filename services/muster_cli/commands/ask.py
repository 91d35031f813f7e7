"""``muster ask``."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from rich.text import Text

from muster.model.language import listed, say
from muster.model.text import counted
from muster.serving.asking import ManifestError, ask, read_job
from muster.serving.scope import EVERYTHING, Lens
from muster.serving.supposed import AskView, Submission
from muster.serving.views import moment_of
from muster_cli.console import DIM, GOOD, STRONG, WARN, Output, styled
from muster_cli.exits import USAGE, CliError
from muster_cli.folding import read_at
from muster_cli.manifests import read_manifests
from muster_cli.meant import gateway_of
from muster_cli.options import At, Document, GatewayOption
from muster_cli.sources import Source
from muster_cli.textfiles import text_of


async def ask_(
    file: Annotated[str, Parameter(allow_leading_hyphen=True, help="YAML file of a job; - for stdin.")],
    /,
    *,
    at: At = "",
    output: Document = "text",
    source: Source | None = None,
    through: GatewayOption | None = None,
) -> None:
    """Tell what a job would meet, before it is submitted."""
    out = Output()
    manifests = read_manifests(text_of(file), file)
    try:
        workloads = [read_job(manifest.body) for manifest in manifests]
    except ManifestError as err:
        raise CliError(f"{file}: {err}", USAGE) from err
    async with gateway_of(through, source, at) as gateway:
        if gateway is not None:
            asked = [Submission(_placed(manifest.body, gateway.home)) for manifest in manifests]
            answers = [await gateway.post("/api/v1/ask", question, AskView) for question in asked]
        else:
            read = await read_at(source, out, at)
            now = max(read.present, read.state.now)
            moment = moment_of(read.state, now, live=not at)
            answers = [ask(read.state, Lens(EVERYTHING, read.state), moment, workload, now) for workload in workloads]
    if output == "text":
        for answer in answers:
            out.lines(ask_lines(answer))
    else:
        out.data([msgspec.to_builtins(answer) for answer in answers], output)


def _placed(body: dict[str, Any], namespace: str) -> dict[str, Any]:
    """A manifest in the namespace of the context, where the manifest names none: as ``kubectl create`` does."""
    return {**body, "metadata": {**({"namespace": namespace} if namespace else {}), **(body.get("metadata") or {})}}


def ask_lines(view: AskView) -> list[Text]:
    """One job."""
    asks = listed(f"{amount} {name}" for name, amount in view.request.items()) or say("nothing that a quota counts")
    lines = [
        styled(
            (f"{view.kind} ", DIM),
            (view.job, STRONG),
            say("  asks for {asks} at {queue}", asks=asks, queue=view.queue) if view.queue else "",
        ),
        styled(("  " + view.summary, GOOD if view.starts_now else WARN)),
    ]
    if view.binds and view.queue and view.binds not in view.summary:
        lines.append(Text(say("  It would wait for: {binds}.", binds=view.binds)))
    if view.costs:
        lines.append(Text(say("  Its cost: {costs}", costs=counted(len(view.costs), "entry", "entries"))))
        lines += [Text(f"    {cost}") for cost in view.costs]
    return [*lines, *(Text(say("  Or: {text}.", text=advice.text)) for advice in view.advice[1:])]
