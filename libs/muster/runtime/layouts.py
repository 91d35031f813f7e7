"""The services that share a process.

Stages communicate only through the log, in any layout: the same commits, under the same leases, by the same rights. So
a log does not show the layout, and the layout can change between two starts.

Services of a process share the connection, the reader of the log and the decoded commit, and start and end together.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.bus.marks import Users
from muster.events.speakers import DECIDING

KEEPER = "keeper"
SERVICES: tuple[str, ...] = ("watcher", *DECIDING, "actuator", "publisher", "gateway", KEEPER)

GROUPS: dict[str, tuple[str, ...]] = {
    "deciders": DECIDING,
    "all": tuple(name for name in SERVICES if name != KEEPER),
}
"""{name of a process: its services}; the keeper has a volume, and rights over streams, that no other process has"""

LAYOUTS: dict[str, tuple[str, ...]] = {
    "separate": SERVICES,
    "deciders": ("deciders", *(name for name in SERVICES if name not in DECIDING)),
    "all": ("all", KEEPER),
}
"""{layout: its processes, each a group or a service}"""

_BETWEEN = "+"


class UnknownServiceError(Exception):
    """There is no such service and no such group."""


def services_of(names: Iterable[str]) -> tuple[str, ...]:
    """The services that are named, alone or by their group, in the order of SERVICES. Raises UnknownServiceError."""
    wanted: set[str] = set()
    for name in names:
        known = name.strip().replace("-", "_")
        if known not in SERVICES and known not in GROUPS:
            raise UnknownServiceError(
                f"there is no service {name!r}; there are {', '.join(SERVICES)}, and for several {', '.join(GROUPS)}"
            )
        wanted.update(members(known))
    return tuple(name for name in SERVICES if name in wanted)


def process_name(services: tuple[str, ...]) -> str:
    """The name of a process by its services: the group's name for the services of a group."""
    for group, those in GROUPS.items():
        if services == those:
            return group
    return _BETWEEN.join(name.replace("_", "-") for name in services)


def members(process: str) -> tuple[str, ...]:
    """The services of a process by its name; a name of something else is its only member."""
    return GROUPS.get(process) or tuple(process.replace("-", "_").split(_BETWEEN))


def overlap(one: str, other: str) -> bool:
    """Whether two processes, by their names, have a service in common: no layout has both."""
    return not set(members(one)).isdisjoint(members(other))


def alone(process: str) -> bool:
    """Whether a process, by its name, has all services but the keeper."""
    return {*GROUPS["all"]} <= {*members(process)}


def user_of(process: str) -> str:
    """The user that a process signs in as, by its name."""
    return process.replace("-", "_")


USERS = Users(overlap, alone)
