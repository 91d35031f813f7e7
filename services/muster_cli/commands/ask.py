"""``muster ask``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter
from rich.text import Text

from muster.model.language import listed, say
from muster.model.text import counted
from muster.serving.supposed import AskView, Submission
from muster_cli.console import DIM, GOOD, STRONG, WARN, Output, styled
from muster_cli.manifests import read_manifests
from muster_cli.meant import answered
from muster_cli.options import At, Document, GatewayOption, Source
from muster_cli.textfiles import text_of

if TYPE_CHECKING:
    from muster_cli.gateway import Gateway


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

    async def ask(gateway: Gateway) -> list[AskView]:
        asked = [Submission(_placed(manifest.body, gateway.home)) for manifest in manifests]
        return [await gateway.post("/api/v1/ask", question, AskView) for question in asked]

    async def read() -> list[AskView]:
        from muster_cli.asking import asked

        return await asked(source, out, at, file, manifests)

    answers = await answered(through, source, at, ask, read)
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
