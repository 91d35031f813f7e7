"""What was used, lost and waited for, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from rich.text import Text

from muster.model.language import listed, say
from muster.model.quota import is_device
from muster.model.resources import in_bytes
from muster.model.text import instant, moment
from muster.told.readmodel.usage import By, Sums
from muster_cli.console import DIM, STRONG, columns, styled

HOUR_MS = 3_600_000


class UsageTable(Struct, frozen=True):
    """The sums of a time. ``resource``: empty for every device there is, or cpu where there is none."""

    by: By
    begin: int
    end: int
    resource: str
    sums: Mapping[str, Sums]

    @property
    def resources(self) -> list[str]:
        if self.resource:
            return [self.resource]
        spoken = {name for sums in self.sums.values() for name in (*sums.used, *sums.waited)}
        return sorted(name for name in spoken if is_device(name)) or ["cpu"]

    def rows(self) -> list[tuple[str, str, tuple[int, int, int], int]]:
        """(queue or owner, resource, hours in thousandths used, lost and waited for, runs), the most used first."""
        entries = []
        for name in self.resources:
            for key, sums in self.sums.items():
                hours = tuple(_hours(amounts.get(name, 0), name) for amounts in (sums.used, sums.lost, sums.waited))
                if any(hours):
                    entries.append((key, name, (hours[0], hours[1], hours[2]), sums.runs))
        return sorted(entries, key=lambda row: (row[1], -row[2][0], row[0]))


def usage_lines(table: UsageTable) -> list[Text]:
    """A line for each queue or owner and resource, the sums, and the time of the table."""
    lines = table.rows()
    about = say("From {begin} to {end} UTC", begin=moment(table.begin), end=moment(table.end))
    if not lines:
        return [
            Text(
                say(
                    "{about} nothing was used or waited for ({resources}).",
                    about=about,
                    resources=listed(table.resources),
                )
            )
        ]
    titles = (table.by.upper(), "RESOURCE", say("USED H"), say("LOST H"), say("LOST %"), say("WAITED H"), "RUNS")
    rows: list[list[Text | str]] = [[styled((word, DIM)) for word in titles]]
    rows += [_line(key or "-", name, hours, runs) for key, name, hours, runs in lines]
    for name in table.resources:
        mine = [row for row in lines if row[1] == name]
        if len(mine) > 1:
            used, lost, waited = (sum(row[2][at] for row in mine) for at in range(3))
            rows.append(_line("all", name, (used, lost, waited), sum(row[3] for row in mine)))
    unit = (
        say("in GiB times hours") if any(in_bytes(name) for name in table.resources) else say("in amounts times hours")
    )
    return [*columns(rows), Text(), Text(f"{about}, {unit}.")]


def _line(key: str, name: str, hours: tuple[int, int, int], runs: int) -> list[Text | str]:
    used, lost, waited = hours
    share = f"{max(lost * 100 // used, 1)} %" if used and lost else "-"
    return [styled((key, STRONG)), name, _shown(used), _shown(lost), share, _shown(waited), str(runs)]


def record(table: UsageTable) -> dict[str, Any]:
    """For programs: hours as numbers."""
    return {
        "by": table.by,
        "from": instant(table.begin),
        "until": instant(table.end),
        "rows": [
            {
                table.by: key,
                "resource": name,
                "used_hours": hours[0] / 1000,
                "lost_hours": hours[1] / 1000,
                "waited_hours": hours[2] / 1000,
                "runs": runs,
            }
            for key, name, hours, runs in table.rows()
        ],
    }


def _hours(amount: int, name: str) -> int:
    """Thousandths of hours times the unit of the resource: a device, a core, a GiB."""
    return amount * 1000 // ((1 << 30) * HOUR_MS) if in_bytes(name) else amount // HOUR_MS


def _shown(hours: int) -> str:
    """To a tenth."""
    tenths = (hours + 50) // 100
    return f"{tenths // 10:,}.{tenths % 10}"
