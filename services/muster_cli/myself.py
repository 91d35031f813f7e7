"""The names under which the user of a command owns jobs."""

from __future__ import annotations

import os

from muster_cli.api import api_of
from muster_cli.marking import author, user_here
from muster_cli.reading import LogPlace


async def my_names(place: LogPlace | None) -> tuple[str, ...]:
    """The user's name in the cluster of a log, else on this machine, and the part before an @ as a second name.

    A label cannot hold an @, so ``alice@example.com`` may own jobs as ``alice``.
    """
    name = user_here(os.environ)
    if place is not None:
        async with api_of(None, place) as api:
            if api is not None:
                name = await author(api, None)
    return names_of(name)


def names_of(user: str) -> tuple[str, ...]:
    """As :func:`my_names`, of a user whose name is known."""
    return tuple(dict.fromkeys((user, user.partition("@")[0])))
