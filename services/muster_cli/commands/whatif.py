"""``muster whatif``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from msgspec import to_builtins

from muster.core.objects.quotatree import read_quota_tree
from muster.core.quota.tree import leaves, read_tree
from muster.simulation.contrast import contrast
from muster.simulation.past import Past, past_of, prioritised, under
from muster.simulation.runner import MUSTER, Options, Result
from muster.simulation.runner import simulate as run_simulation
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, USAGE, CliError
from muster_cli.logfiles import complete, existing, progress
from muster_cli.manifests import read_manifests
from muster_cli.options import Document
from muster_cli.render.simulations import contrast_lines
from muster_cli.waitbar import counting


def whatif(
    *,
    log: Annotated[Path, Parameter(help="Exported log, plain or .gz; it must begin at its beginning.")],
    tree: Annotated[
        Path | None, Parameter(show_default=False, help="YAML file with the ElasticQuotaTree to be tried.")
    ] = None,
    priority: Annotated[
        tuple[str, ...], Parameter(show_default=False, help="NAMESPACE/NAME=N: another priority for a job. Repeatable.")
    ] = (),
    output: Document = "text",
) -> None:
    """Run a recorded past again with something changed."""
    if tree is None and not priority:
        raise CliError("nothing is changed: give --tree or --priority", USAGE)
    wanted = dict(_priority(text) for text in priority)
    with progress(existing(log), "Reading") as commits:
        past = past_of(complete(log, commits))
    changed = prioritised(past, wanted)
    if tree is not None:
        changed = _under_tree(changed, tree)
    before, after = _run(past, "as it was"), _run(changed, "with the change")
    shown = Output()
    found = contrast(before, after, past.keys)
    if output == "text":
        shown.lines(contrast_lines(found, len(past.trace.jobs), changed.left_out))
    else:
        shown.data(to_builtins(found), output)


def _run(past: Past, which: str) -> Result:
    with counting(f"Running {which}", len(past.trace.jobs), "jobs") as shown:
        return run_simulation(past.trace, MUSTER, Options(), alone={}, progress=shown)


def _priority(text: str) -> tuple[str, int]:
    job, equals, number = text.rpartition("=")
    if not equals or "/" not in job or not number.lstrip("-").isdecimal():
        raise CliError(f"--priority {text}: write NAMESPACE/NAME=N, e.g. video/job-7=100", USAGE)
    return job, int(number)


def _under_tree(past: Past, path: Path) -> Past:
    if not path.is_file():
        raise CliError(f"cannot read {path}: there is no such file", NOT_FOUND)
    found = [each for each in read_manifests(path.read_text(encoding="utf-8"), str(path)) if "QuotaTree" in each.kind]
    if len(found) != 1:
        raise CliError(f"{path} holds {len(found)} ElasticQuotaTrees; one is needed", USAGE)
    body = found[0].body
    body["metadata"] = {"uid": "tried", "resourceVersion": "1", **body["metadata"]}
    observed = read_quota_tree(json.dumps(body, default=str).encode())
    read, broken = read_tree(observed)
    if broken:
        raise CliError(f"{path}: {broken[0]}" + (f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""), USAGE)
    namespaces = {namespace: leaf.path for leaf in leaves(read) for namespace in leaf.namespaces}
    return under(past, read, namespaces, observed.rules)
