"""A quota tree judged, and two compared, as lines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from muster.model.language import say, say_many
from muster.model.text import counted
from muster_cli.console import BAD, DIM, GOOD, STRONG, WARN, columns, styled
from muster_cli.quotadiff import Affected, TreeDifference
from muster_cli.quotafiles import Linted

SHOWN = 20


def lint_lines(linted: Linted) -> list[Text]:
    """Every broken rule with its path, every warning, and a last line with the verdict."""
    lines = [
        styled((say("broken   "), BAD), (problem.path, STRONG), say(": {detail}", detail=problem.detail))
        for problem in linted.broken
    ]
    lines += [
        styled((say("warning  "), WARN), (warning.path, STRONG), say(": {detail}", detail=warning.detail))
        for warning in linted.warnings
    ]
    odd = say(", ") + counted(len(linted.warnings), "warning") if linted.warnings else ""
    if linted.broken and linted.queues:
        lost = say_many(
            len(linted.broken),
            "{number} of its queues would be disabled with the queues below it",
            "{number} of its queues would be disabled with the queues below them",
            number=len(linted.broken),
        )
        return [
            *lines,
            styled((say("{name}{odd}: {lost}, the others count", name=linted.name, odd=odd, lost=lost), BAD)),
        ]
    if linted.broken:
        text = say(
            "{name} breaks {rules}{odd}: it would be refused as a whole",
            name=linted.name,
            rules=counted(len(linted.broken), "rule"),
            odd=odd,
        )
        return [*lines, styled((text, BAD))]
    nodes = len(linted.tree.nodes) if linted.tree is not None else 0
    return [*lines, styled((say("ok       "), GOOD), f"{linted.name}: {counted(nodes, 'node')}{odd}")]


def diff_lines(difference: TreeDifference) -> list[Text]:
    """What changes in the tree, then the effect on running and waiting jobs."""
    lines = [styled(("+ ", GOOD), path) for path in difference.added]
    lines += [styled(("- ", BAD), path) for path in difference.removed]
    rows: list[list[Text | str]] = [
        [styled(("~ ", WARN), change.path or say("(tree)")), change.what, f"{change.before} → {change.after}"]
        for change in difference.changed
    ]
    lines += columns(rows)
    if not lines:
        lines = [Text(say("The tree is the same as the one in force."))]
    lines += [
        styled(
            ("= ", DIM),
            say("(tree)  annotation muster.dev/{name} is not in the file; `kubectl apply` keeps it", name=name),
        )
        for name in difference.kept
    ]
    lines += [Text(), styled((say("As of sequence {seq}:", seq=difference.seq), DIM))]
    effects = [
        styled(
            (say("over its max  "), BAD),
            say(
                "{path}: {used} {resource} in use, max {limit}",
                path=excess.path,
                used=excess.used,
                resource=excess.resource,
                limit=excess.limit,
            ),
        )
        for excess in difference.over[:SHOWN]
    ]
    effects += _more(len(difference.over))
    effects += _affected(say("fits now"), GOOD, difference.fits)
    effects += _affected(say("fits no longer"), BAD, difference.refused)
    effects += _affected(say("can never fit"), BAD, difference.hopeless)
    effects += _affected(say("leaves its queue"), BAD, difference.unqueued)
    effects += _affected(say("runs, unclaimed"), WARN, difference.unclaimed)
    return lines + (effects or [Text(say("no queue would be over its max, and nothing changes for the waiting jobs"))])


def _affected(word: str, colour: str, jobs: Sequence[Affected]) -> list[Text]:
    shown = [
        styled((f"{word}  ", colour), job.job, say(" in {queue}", queue=job.queue), f": {job.why}" if job.why else "")
        for job in jobs[:SHOWN]
    ]
    return shown + _more(len(jobs))


def _more(count: int) -> list[Text]:
    return [styled(("  " + say("and {number} more", number=count - SHOWN), DIM))] if count > SHOWN else []
