"""What a replay and an audit found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.text import Text

import muster
from muster.audit.auditor import Auditor
from muster.core.stage import Violation
from muster.events.system import Genesis
from muster.events.wire import WIRE
from muster.model.language import listed, say, translated
from muster.model.text import counted, moment, shorten
from muster.runtime.replaying.canonical import FirstDifference
from muster.runtime.replaying.replay import Divergence, ReplayReport
from muster_cli.console import BAD, DIM, GOOD, STRONG, columns, styled
from muster_cli.invariants import CHECKED, UNCHECKED
from muster_cli.render.differences import EVENT_WIDTH, different_fields, state_difference_lines, where_differs

VIOLATIONS_SHOWN = 20


def written_by(genesis: Genesis) -> str:
    """The build that decided a generation, as far as its genesis names one."""
    return say("{build} (wire {wire})", build=genesis.build or say("without a name"), wire=genesis.wire)


def replay_lines(report: ReplayReport, builds: Sequence[str] = ()) -> list[Text]:
    """What was decided again, the first difference, and as the last line ``N commits, M divergent``. ``builds``: of the
    generations that were read.
    """
    lines = [
        styled(
            (
                say(
                    "{events}, {decision_commits} decided again",
                    events=counted(report.events, "event"),
                    decision_commits=counted(report.decisions, "decision commit"),
                )
                + (f", {counted(report.silences, 'quiet position')} too" if report.silences else ""),
                DIM,
            )
        )
    ]
    if report.divergences:
        lines += divergence_lines(report.divergences[0])
        if builds:
            own = f"{muster.__version__} (wire {WIRE})"
            text = say(
                "  decided by build {builds}; this is build {own}: only the same build decides alike",
                builds=listed(builds),
                own=own,
            )
            lines.append(Text(text))
    lines += violation_lines(report.violations, say("a stage's own invariants are broken"))
    divergent = len(report.divergences)
    verdict = f"{report.commits} commits, {divergent} divergent"
    return [*lines, styled((verdict, BAD if divergent or report.violations else GOOD))]


def divergence_lines(divergence: Divergence) -> list[Text]:
    """One decision that is not made again: the place, and both versions."""
    recorded, decided = divergence.first_difference()
    lines = [
        styled(
            (say("First divergence: "), BAD),
            say(
                "stage {stage}, commit {seq}, decided after {in_seq}",
                stage=divergence.stage,
                seq=divergence.seq,
                in_seq=divergence.in_seq,
            ),
        )
    ]
    if not divergence.recorded:
        lines.append(Text(say("  the log has no decision there, and this build makes one")))
    elif not divergence.decided:
        lines.append(Text(say("  the log has a decision there, and this build makes none")))
    else:
        lines.append(
            Text(
                say(
                    "  the log has {events}, this build decides {decided}; the first that differ:",
                    events=counted(len(divergence.recorded), "event"),
                    decided=len(divergence.decided),
                )
            )
        )
    lines.append(styled((say("  recorded  "), DIM), shorten(recorded, EVENT_WIDTH) or say("(nothing)")))
    lines.append(styled((say("  decided   "), DIM), shorten(decided, EVENT_WIDTH) or say("(nothing)")))
    where = where_differs(recorded, decided)
    if where:
        lines.append(styled((say("  differs in  "), DIM), where))
    if divergence.state:
        lines.append(Text(say("  the state after both differs in:")))
    lines += state_difference_lines(divergence.state, "recorded", "decided")
    lines.append(
        styled(
            (say("  step into it: muster debug {stage} --at {seq}", stage=divergence.stage, seq=divergence.seq), DIM)
        )
    )
    return lines


def replay_record(report: ReplayReport) -> dict[str, Any]:
    """What a replay found, for programs."""
    return {
        "commits": report.commits,
        "events": report.events,
        "decisions": report.decisions,
        "silences": report.silences,
        "divergent": len(report.divergences),
        "first": msgspec.to_builtins(report.divergences[0]) if report.divergences else None,
        "violations": msgspec.to_builtins(report.violations),
    }


def difference_lines(difference: FirstDifference | None, same: int, names: tuple[str, str]) -> list[Text]:
    """The first decision two logs do not share, or that there is none."""
    if difference is None:
        return [styled((say("{decisions}, no difference", decisions=counted(same, "decision")), GOOD))]
    lines = [Text(say("{decisions} are the same; then they differ:", decisions=counted(same, "decision")))]
    sides = (difference.one, difference.other)
    for name, side in zip(names, sides, strict=True):
        lines.append(styled((f"  {name}", STRONG)))
        if side is None:
            lines.append(Text(say("    decides nothing more")))
            continue
        lines.append(
            styled(
                (
                    say(
                        "    {at}, stage {stage}, after commit {after}:",
                        at=moment(side.at),
                        stage=side.stage,
                        after=side.after,
                    ),
                    DIM,
                )
            )
        )
        lines.append(Text("    " + shorten(msgspec.json.encode(side.event).decode(), EVENT_WIDTH)))
    if difference.one is not None and difference.other is not None:
        one, other = difference.one.event, difference.other.event
        where = different_fields(one, other) or say("the stage that decides")
        if one["type"] != other["type"]:
            where = say("what is decided: {one}, or {other}", one=one["type"], other=other["type"])
        lines.append(styled((say("  differs in  "), DIM), where))
    return lines


def violation_lines(violations: Sequence[Violation], heading: str) -> list[Text]:
    """Broken invariants, one line each."""
    if not violations:
        return []
    lines = [styled((f"{counted(len(violations), 'violation')}: {heading}", BAD))]
    lines += [
        Text(f"  {violation.invariant}  {shorten(violation.detail, 400)}")
        for violation in violations[:VIOLATIONS_SHOWN]
    ]
    if len(violations) > VIOLATIONS_SHOWN:
        lines.append(Text("  " + say("and {number} more", number=len(violations) - VIOLATIONS_SHOWN)))
    return lines


def audit_lines(auditor: Auditor, violations: Sequence[Violation]) -> list[Text]:
    """Per invariant the number of checks and of violations, then the invariants without a check here, then the
    verdict.
    """
    rows: list[list[Text | str]] = [[styled((title, STRONG)) for title in ("", "CHECKED", "BROKEN", "INVARIANT")]]
    for name, statement in CHECKED.items():
        broken = auditor.broken[name]
        rows.append([name, str(auditor.counts[name]), styled((str(broken), BAD if broken else "")), statement])
    lines = columns(rows)
    lines += [Text(), styled((say("Not checked here:"), STRONG))]
    lines += columns([(name, translated(why)) for name, why in UNCHECKED.items()], indent=2)
    lines.append(Text())
    lines += violation_lines(violations, say("what must hold does not"))
    total = sum(auditor.broken.values())
    verdict = f"{counted(auditor.commits, 'commit')}, {counted(sum(auditor.counts.values()), 'check')}, {total} broken"
    return [*lines, styled((verdict, BAD if total else GOOD))]


def audit_record(auditor: Auditor, violations: Sequence[Violation]) -> dict[str, Any]:
    """The audit for programs."""
    return {
        "commits": auditor.commits,
        "events": dict(sorted(auditor.events.items())),
        "checked": {
            name: {"statement": statement, "checked": auditor.counts[name], "broken": auditor.broken[name]}
            for name, statement in CHECKED.items()
        },
        "unchecked": UNCHECKED,
        "violations": [{"invariant": violation.invariant, "detail": violation.detail} for violation in violations],
    }
