"""The rights of each runner on the bus, and the runners of each service: declared once.

A process gets its leases and snapshots by these rows (:mod:`muster.runtime.process`), and the accounts of NATS are
computed from the rows (:mod:`muster.runtime.natsaccounts`). A process gets nothing beyond its rows, even if its NATS
allows more.
"""

from __future__ import annotations

from msgspec import Struct

from muster.bus.cell import FOLDERS
from muster.events.speakers import DECIDING
from muster.runtime.layouts import KEEPER, SERVICES, members

READ_MODEL = "readmodel"


class UndeclaredError(Exception):
    """A runner opens a part of the bus that its row does not name: a defect, which an open NATS would hide."""


class Opening(Struct, frozen=True):
    """The parts of the bus that one runner opens, besides the log, which every process reads."""

    appends: str = ""
    """The stage that it appends as."""
    lease: str = ""
    """The stage whose lease it holds, or the runner that acts alone."""
    begins: tuple[str, ...] = ()
    """The stages whose snapshots it reads."""
    keeps: str = ""
    """The stage whose snapshots it writes."""
    announces: bool = False
    """It says by which rule sets it can decide."""
    quarantines: bool = False
    """It puts aside what it cannot read."""
    pairs: bool = False
    """It writes down which cluster the log is about."""
    publishes: bool = False
    """It copies public events to the public stream."""
    founds: bool = False
    """It founds, seals and deletes generations of the log, and rebuilds a damaged copy of one."""
    asks_servers: bool = False
    """It asks each server of NATS how it is and what it has stored."""


def _leading(stage: str) -> Opening:
    """What the leader of a stage opens."""
    watches = stage == "watcher"
    return Opening(
        appends=stage,
        lease=stage,
        begins=(stage,),
        keeps=stage,
        announces=stage in DECIDING,
        quarantines=watches,
        pairs=watches,
    )


OPENINGS: dict[str, Opening] = {
    "watcher": _leading("watcher"),
    **{stage: _leading(stage) for stage in DECIDING},
    "actuator": _leading("actuator"),
    "presenter": Opening(lease="presenter", begins=(READ_MODEL,)),
    READ_MODEL: Opening(begins=(READ_MODEL,), keeps=READ_MODEL),
    "publisher": Opening(lease="publisher", begins=(READ_MODEL,), publishes=True),
    "gateway": Opening(begins=(READ_MODEL,)),
    KEEPER: Opening(lease=KEEPER, begins=FOLDERS, founds=True, asks_servers=True),
}
"""{runner: what it opens}"""

RUNNERS: dict[str, tuple[str, ...]] = {
    **{service: (service,) for service in SERVICES},
    "actuator": ("actuator", "presenter"),
    "publisher": (READ_MODEL, "publisher"),
}
"""{service: its runners}"""


def openings(process: str) -> dict[str, Opening]:
    """{runner: opening} of a process, by name; every runner for a process without a known service."""
    services = members(process)
    known = [service for service in services if service in RUNNERS]
    return {runner: OPENINGS[runner] for service in known or RUNNERS for runner in RUNNERS[service]}


def opening(process: str, runner: str) -> Opening:
    """What a runner of a process opens. Raises UndeclaredError where the process has no such runner."""
    by_runner = openings(process)
    if runner not in by_runner:
        raise UndeclaredError(
            f"process {process} runs {', '.join(by_runner)}, and not {runner}: add it to RUNNERS in {__name__}, "
            "which its rights in NATS are computed from"
        )
    return by_runner[runner]
