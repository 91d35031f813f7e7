"""``muster quota shares``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from muster.model.language import listed, say
from muster_cli.brokenrules import BrokenRule
from muster_cli.console import Output
from muster_cli.exits import OK, USAGE, CliError
from muster_cli.options import pair
from muster_cli.render.shares import share_lines
from muster_cli.sharefiles import (
    Given,
    compiled,
    is_table,
    manifests_of,
    parse_amounts,
    read_queues,
    read_table,
    read_text,
    total_of,
)
from muster_cli.sharing import Shared, of_queues, of_tree, record

Table = Annotated[
    Literal["table", "json", "yaml"],
    Parameter(name=["--output", "-o"], help="How to print it: a table for people, the others for programs."),
]


def quota_shares(
    *,
    queues: Annotated[
        Path,
        Parameter(
            allow_leading_hyphen=True,
            help="KAI Queues or an ElasticQuotaTree as YAML, or a table {total, queues, k}; - reads stdin.",
        ),
    ],
    total: Annotated[
        str, Parameter(show_default=False, help="What there is to share, as gpu=8,cpu=64000,memory=512000.")
    ] = "",
    request: Annotated[
        tuple[str, ...],
        Parameter(negative="", show_default=False, help="What a queue asks for, as team-a=gpu=5; several times."),
    ] = (),
    output: Table = "table",
) -> int:
    """Divide what there is among queues in a file."""
    text, origin = read_text(queues)
    out = Output()
    shared = _shared(text, origin, total, request)
    if output == "table":
        out.lines(share_lines(shared))
        for name, reason in sorted(shared.disabled.items()):
            out.note(say("queue {name} is disabled: {reason}", name=name, reason=reason))
        for warning in shared.warnings:
            out.note(say("warning: {path}: {detail}", path=warning.path, detail=warning.detail))
    else:
        out.data(record(shared), output)
    return OK


def _shared(text: str, origin: str, total: str, request: tuple[str, ...]) -> Shared:
    table = is_table(text, origin)
    if table is not None:
        if total:
            table = {**table, "total": {name: float(value) for name, value in parse_amounts(total, "--total").items()}}
        given = read_table(table, origin)
    else:
        manifests, trees = manifests_of(text, origin)
        if trees:
            if total or request:
                raise CliError(say("--total and --request are for Queues; a tree's root says what there is"), USAGE)
            if len(trees) > 1:
                raise CliError(
                    say("{origin} holds {trees} ElasticQuotaTrees; put one into it", origin=origin, trees=len(trees)),
                    USAGE,
                )
            return of_tree(trees[0])
        given = read_queues(manifests)
        given.total = parse_amounts(total, "--total") if total else {}
        if not given.total:
            given.total, told = total_of(given)
            given.warnings.append(BrokenRule("total", "assumed", told))
    _take_requests(given, request, origin)
    return of_queues(compiled(given))


def _take_requests(given: Given, request: tuple[str, ...], origin: str) -> None:
    names = {queue.name for queue in given.queues}
    for text in request:
        name, amounts = pair("--request", text, "team-a=gpu=5")
        if name not in names:
            raise CliError(
                say(
                    "--request {words}: {origin} has no queue {name}; it has {names}",
                    words=text,
                    origin=origin,
                    name=name,
                    names=listed(sorted(names)),
                ),
                USAGE,
            )
        given.requests[name] = parse_amounts(amounts, f"--request {name}")
