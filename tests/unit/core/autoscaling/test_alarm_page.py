"""The table of alarms in the docs says what the watchdog does: every alarm, when, by which name, in its order."""

import re

from kit.compose import REPOSITORY
from muster.core.autoscaling.watchdog import HOLD_MS, LIMITS_MS, LONGEST_HOLD
from muster.told.wording.reasons import ALARMS

PAGE = (REPOSITORY / "docs" / "howto" / "ray-autoscaler.md").read_text()
ROWS = {name: (after, code, does) for name, after, code, does in re.findall(
    r"^\| `(\w+)` \| ([^|]+) \| `(\w+)` \| ([^|]+) \|$", PAGE, re.MULTILINE
)}  # fmt: skip
MS = {"s": 1_000, "min": 60_000}


def test_every_alarm_has_its_row_the_most_severe_first() -> None:
    assert list(ROWS) == list(LIMITS_MS)
    assert {name: code for name, (_, code, _) in ROWS.items()} == {name: code for name, (code, _) in ALARMS.items()}


def test_the_times_are_those_of_the_watchdog() -> None:
    told = {name: re.match(r"(\d+) (s|min)\b", after) for name, (after, _, _) in ROWS.items()}
    found = {name: int(match[1]) * MS[match[2]] for name, match in told.items() if match}
    assert found == {name: limit for name, limit in LIMITS_MS.items() if limit}


def test_the_pauses_are_those_of_the_watchdog() -> None:
    first, *longer = [int(each) for each in re.findall(r"\d+", ROWS["not_growing"][2])]
    assert [first, *longer] == [HOLD_MS * 2**times // MS["min"] for times in range(LONGEST_HOLD + 1)]
