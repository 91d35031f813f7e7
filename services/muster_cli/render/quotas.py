"""A quota tree judged, and two compared, as lines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from muster.model.text import counted
from muster_cli.console import BAD, DIM, GOOD, STRONG, WARN, columns, styled
from muster_cli.quotadiff import Affected, TreeDifference
from muster_cli.quotafiles import Linted

SHOWN = 20


def lint_lines(linted: Linted) -> list[Text]:
    """Every broken rule with its path, every warning, and a last line with the verdict."""
    lines = [styled(("broken   ", BAD), (problem.path, STRONG), f": {problem.detail}") for problem in linted.broken]
    lines += [styled(("warning  ", WARN), (warning.path, STRONG), f": {warning.detail}") for warning in linted.warnings]
    odd = f", {counted(len(linted.warnings), 'warning')}" if linted.warnings else ""
    if linted.broken and linted.queues:
        one = len(linted.broken) == 1
        lost = f"{len(linted.broken)} of its queues would be disabled with the queues below {'it' if one else 'them'}"
        return [*lines, styled((f"{linted.name}{odd}: {lost}, the others count", BAD))]
    if linted.broken:
        text = f"{linted.name} breaks {counted(len(linted.broken), 'rule')}{odd}: it would be refused as a whole"
        return [*lines, styled((text, BAD))]
    nodes = len(linted.tree.nodes) if linted.tree is not None else 0
    return [*lines, styled(("ok       ", GOOD), f"{linted.name}: {counted(nodes, 'node')}{odd}")]


def diff_lines(difference: TreeDifference) -> list[Text]:
    """What changes in the tree, then the effect on running and waiting jobs."""
    lines = [styled(("+ ", GOOD), path) for path in difference.added]
    lines += [styled(("- ", BAD), path) for path in difference.removed]
    rows: list[list[Text | str]] = [
        [styled(("~ ", WARN), change.path or "(tree)"), change.what, f"{change.before} → {change.after}"]
        for change in difference.changed
    ]
    lines += columns(rows)
    if not lines:
        lines = [Text("The tree is the same as the one in force.")]
    lines += [
        styled(("= ", DIM), f"(tree)  annotation muster.dev/{name} is not in the file; `kubectl apply` keeps it")
        for name in difference.kept
    ]
    lines += [Text(), styled((f"As of sequence {difference.seq}:", DIM))]
    effects = [
        styled(("over its max  ", BAD), f"{excess.path}: {excess.used} {excess.resource} in use, max {excess.limit}")
        for excess in difference.over[:SHOWN]
    ]
    effects += _more(len(difference.over))
    effects += _affected("fits now", GOOD, difference.fits)
    effects += _affected("fits no longer", BAD, difference.refused)
    effects += _affected("can never fit", BAD, difference.hopeless)
    effects += _affected("leaves its queue", BAD, difference.unqueued)
    effects += _affected("runs, unclaimed", WARN, difference.unclaimed)
    return lines + (effects or [Text("no queue would be over its max, and nothing changes for the waiting jobs")])


def _affected(word: str, colour: str, jobs: Sequence[Affected]) -> list[Text]:
    shown = [
        styled((f"{word}  ", colour), job.job, f" in {job.queue}", f": {job.why}" if job.why else "")
        for job in jobs[:SHOWN]
    ]
    return shown + _more(len(jobs))


def _more(count: int) -> list[Text]:
    return [styled((f"  and {count - SHOWN} more", DIM))] if count > SHOWN else []
