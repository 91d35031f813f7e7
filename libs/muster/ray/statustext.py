"""The text of `ray status`, of both versions of the autoscaler, as values. Pure.

Known sections: node status (``Active`` or, in old texts, ``Healthy``; ``Idle``, ``Pending``, ``Recent failures``) and
resources (``Total Usage`` or ``Usage``; ``From request_resources``; ``Pending Demands`` or ``Demands``). Everything
else is passed over, so a newer Ray may say more. The text has no ids: placement groups of one strategy are counted
together, and the text shows the bundles of a single group.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from msgspec import Struct, field

from muster.model.raydemand import RayShape
from muster.ray.errors import GarbledError
from muster.ray.shapes import bundle, shapes

MAX_TEXT = 4 * 1024 * 1024
_MAX_LINE = 16 * 1024

_HEADER = re.compile(r"=+ Autoscaler status: (?P<time>\S+ \S+) =+")
_COUNTED = re.compile(r"(?P<count>\d+) (?P<group>\S+)")
_LAUNCHING = re.compile(r"(?P<group>\S+), (?P<count>\d+) launching")
_COMING = re.compile(r"(?P<pod>\S+): (?P<group>[^,\s]+), (?P<state>.+)")
_FAILURE = re.compile(r"(?P<group>[^:\s]+): (?P<what>\w+)(?: .*)?")
_USAGE = re.compile(
    r"(?P<used>[\d.e+-]+)(?P<unit>[KMGT]?i?B)?/(?P<total>[\d.e+-]+)(?P<of>[KMGT]?i?B)? (?P<resource>\S+)"
)
_REQUESTED = re.compile(r"(?P<bundle>\{.*\}): (?P<count>\d+)\+? from request_resources\(\)")
_WAITING = re.compile(
    r"(?P<bundle>\{.*\}): (?P<count>\d+)\+ pending tasks/actors(?: \((?P<held>\d+)\+ using placement groups\))?"
)
_GROUPS = re.compile(r"(?P<bundles>\{.*\} \* \d+) \((?P<strategy>[A-Z_]+)\): (?P<count>\d+)\+ pending placement groups")
_BUNDLE = re.compile(r"(\{[^{}]*\}) \* (\d+)")
_EMPTY = re.compile(r"\((no .*|none)\)")
_SECTIONS = {
    "Active": "active", "Healthy": "active", "Idle": "idle", "Pending": "pending", "Recent failures": "failures",
    "Total Usage": "usage", "Usage": "usage", "From request_resources": "requested", "Constraints": "requested",
    "Pending Demands": "demands", "Demands": "demands",
}  # fmt: skip
_UNITS = {None: 1, "": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


class WaitingGroups(Struct, frozen=True):
    """Placement groups of one strategy."""

    strategy: str
    bundles: tuple[RayShape, ...]
    count: int


class StatusText(Struct):
    """What a text says."""

    time: str = ""
    """As written: the head's local time."""
    active: dict[str, int] = field(default_factory=dict)
    """{worker group, or headgroup: nodes}"""
    idle: dict[str, int] = field(default_factory=dict)
    launching: dict[str, int] = field(default_factory=dict)
    coming: dict[str, tuple[str, str]] = field(default_factory=dict)
    """{instance: (group, state)} of nodes that are being set up."""
    failures: list[tuple[str, str]] = field(default_factory=list)
    """(group, what failed)"""
    usage: dict[str, tuple[float, float]] = field(default_factory=dict)
    """{resource: (used, total)}; memory in bytes, to the two decimals shown."""
    requested: tuple[RayShape, ...] = ()
    waiting: tuple[RayShape, ...] = ()
    """Tasks and actors, without those that wait for or run in a placement group."""
    groups: list[WaitingGroups] = field(default_factory=list)
    passed_over: int = 0
    """Lines in known sections that were not understood."""
    left_out: int = 0


def parse_status(text: str) -> StatusText:
    """Read a text. Raises GarbledError where it is no `ray status` at all, or has amounts that are none."""
    if len(text) > MAX_TEXT:
        raise GarbledError(f"a status of {len(text)} characters; at most {MAX_TEXT} are read")
    header = _HEADER.search(text)
    if header is None:
        raise GarbledError(f"no `Autoscaler status` in {text[:80]!r}: the head may still be starting")
    status = StatusText(time=header["time"])
    requested: list[RayShape] = []
    waiting: list[RayShape] = []
    seen: set[str] = set()
    for section, line in _lines(text[header.end() :]):
        seen.add(section)
        if _EMPTY.fullmatch(line) or not line:
            continue
        if section in ("requested", "demands") and (match := _REQUESTED.fullmatch(line)):
            requested.append(RayShape(_bundle(match["bundle"]), int(match["count"])))
        elif section == "demands" and (match := _WAITING.fullmatch(line)):
            waiting.append(RayShape(_bundle(match["bundle"]), int(match["count"]) - int(match["held"] or 0)))
        elif section == "demands" and (match := _GROUPS.fullmatch(line)):
            bundles, _ = shapes(RayShape(_bundle(one), int(count)) for one, count in _BUNDLE.findall(match["bundles"]))
            status.groups.append(WaitingGroups(match["strategy"], bundles, int(match["count"])))
        elif not _nodes_line(status, section, line):
            status.passed_over += 1
    if not {"active", "demands"} <= seen:
        raise GarbledError(f"half a status: it ends with {text[-80:]!r}, before its nodes and demands are all said")
    status.requested, lost = shapes(requested)
    status.waiting, more = shapes(waiting)
    status.left_out = lost + more
    return status


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """(section, line) for each line of a known section; the heading itself is an empty line."""
    section = ""
    for raw in text.splitlines():
        line = raw.strip()
        if raw.startswith("Node: "):  # what follows is each node's, in long texts
            return
        if raw and not raw[0].isspace():
            section = _SECTIONS.get(line.removesuffix(":"), "")
            if section:
                yield section, ""
        elif section and line and len(line) <= _MAX_LINE:
            yield section, line


def _nodes_line(status: StatusText, section: str, line: str) -> bool:
    """Take in a line of one of the sections about nodes; whether it was understood."""
    if section in ("active", "idle") and (match := _COUNTED.fullmatch(line)):
        counts = status.active if section == "active" else status.idle
        counts[match["group"]] = counts.get(match["group"], 0) + int(match["count"])
    elif section == "pending" and (match := _LAUNCHING.fullmatch(line)):
        status.launching[match["group"]] = int(match["count"])
    elif section == "pending" and (match := _COMING.fullmatch(line)):
        status.coming[match["pod"]] = (match["group"], match["state"])
    elif section == "failures" and (match := _FAILURE.fullmatch(line)):
        status.failures.append((match["group"], match["what"]))
    elif section == "usage" and (match := _USAGE.match(line)):
        used, total = float(match["used"]) * _UNITS[match["unit"]], float(match["total"]) * _UNITS[match["of"]]
        status.usage[match["resource"]] = (used, total)
    else:
        return False
    return True


def _bundle(text: str) -> dict[str, int]:
    """``{'CPU': 1.0}``, as Python writes it."""
    try:
        parsed = ast.literal_eval(text)
        return bundle({str(name): float(value) for name, value in parsed.items()})
    except (ValueError, SyntaxError, TypeError, AttributeError, RecursionError, MemoryError) as err:
        raise GarbledError(f"{text[:80]!r} is not a bundle such as {{'CPU': 1.0}}") from err
