"""A quota tree judged, and two compared, as lines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from muster.model.text import counted
from muster_cli.console import BAD, DIM, GOOD, STRONG, WARN, columns, styled
from muster_cli.quotadiff import Affected, TreeDifference
from muster_cli.quotafiles import Linted

SHOWN = 20


def lint_lines(found: Linted) -> list[Text]:
    """Every broken rule with its path, every warning, and a last line with the verdict."""
    lines = [styled(("broken   ", BAD), (each.path, STRONG), f": {each.detail}") for each in found.broken]
    lines += [styled(("warning  ", WARN), (each.path, STRONG), f": {each.detail}") for each in found.warnings]
    odd = f", {counted(len(found.warnings), 'warning')}" if found.warnings else ""
    if found.broken and found.queues:
        one = len(found.broken) == 1
        lost = f"{len(found.broken)} of its queues would be disabled with the queues below {'it' if one else 'them'}"
        return [*lines, styled((f"{found.name}{odd}: {lost}, the others count", BAD))]
    if found.broken:
        said = f"{found.name} breaks {counted(len(found.broken), 'rule')}{odd}: it would be refused as a whole"
        return [*lines, styled((said, BAD))]
    nodes = len(found.tree.nodes) if found.tree is not None else 0
    return [*lines, styled(("ok       ", GOOD), f"{found.name}: {counted(nodes, 'node')}{odd}")]


def diff_lines(found: TreeDifference) -> list[Text]:
    """What changes in the tree, then the effect on running and waiting jobs."""
    lines = [styled(("+ ", GOOD), path) for path in found.added]
    lines += [styled(("- ", BAD), path) for path in found.removed]
    rows: list[list[Text | str]] = [
        [styled(("~ ", WARN), each.path or "(tree)"), each.what, f"{each.before} → {each.after}"]
        for each in found.changed
    ]
    lines += columns(rows)
    if not lines:
        lines = [Text("The tree is the same as the one in force.")]
    lines += [
        styled(("= ", DIM), f"(tree)  annotation muster.dev/{name} is not in the file; `kubectl apply` keeps it")
        for name in found.kept
    ]
    lines += [Text(), styled((f"As of sequence {found.seq}:", DIM))]
    effects = [
        styled(("over its max  ", BAD), f"{each.path}: {each.used} {each.resource} in use, max {each.limit}")
        for each in found.over[:SHOWN]
    ]
    effects += _more(len(found.over))
    effects += _affected("fits now", GOOD, found.fits)
    effects += _affected("fits no longer", BAD, found.refused)
    effects += _affected("can never fit", BAD, found.hopeless)
    effects += _affected("leaves its queue", BAD, found.unqueued)
    effects += _affected("runs, unclaimed", WARN, found.unclaimed)
    return lines + (effects or [Text("no queue would be over its max, and nothing changes for the waiting jobs")])


def _affected(word: str, colour: str, jobs: Sequence[Affected]) -> list[Text]:
    shown = [
        styled((f"{word}  ", colour), each.job, f" in {each.queue}", f": {each.why}" if each.why else "")
        for each in jobs[:SHOWN]
    ]
    return shown + _more(len(jobs))


def _more(count: int) -> list[Text]:
    return [styled((f"  and {count - SHOWN} more", DIM))] if count > SHOWN else []
