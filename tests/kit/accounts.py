"""The accounts of NATS as they are shipped, for tests that start services as processes.

Each service signs in with a key of its own, as in an installation. A tool of a test has no key: it is in the account
that has the streams, and sees and changes everything.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kit.production import FILES
from muster.bus.server import EmbeddedServer
from muster.events.subjects import DEFAULT_CELL
from muster.runtime.natsaccounts import API, dashed, inbox, muster_users, render
from muster.runtime.natskeys import KeyRing

ONLOOKER = "onlooker"
READER = "reader"


class Accounts:
    """Keys of every user, in a folder. ``config``: lines for the configuration of a nats-server."""

    def __init__(self, folder: Path, cell: str = DEFAULT_CELL) -> None:
        self._folder = folder
        ring = KeyRing([*(user.name for user in muster_users(cell)), READER, "system"])
        for user, seed in ring.seeds.items():
            path = self.seed_of(user)
            path.parent.mkdir(parents=True)
            path.write_bytes(seed)
        text = (FILES / "accounts.conf").read_text() if cell == DEFAULT_CELL else render(cell, {READER: ""})
        for line, instead in (
            ('include "keys.conf"\n', ring.conf()),
            (
                "    jetstream: enabled\n",
                f"    jetstream: enabled\n    users: [ {{ user: {ONLOOKER}, password: x }} ]\n",
            ),
        ):
            assert text.count(line) == 1, line
            text = text.replace(line, instead)
        self.config = f"{text}no_auth_user: {ONLOOKER}\n"

    def seed_of(self, user: str) -> Path:
        return self._folder / dashed(user) / "seed"

    def env(self, user: str) -> dict[str, str]:
        """The settings of a process that signs in as a user."""
        return {
            "MUSTER_NATS_NKEY_FILE": str(self.seed_of(user)),
            "MUSTER_NATS_INBOX_PREFIX": inbox(user),
            "MUSTER_NATS_API_PREFIX": API,
        }


@asynccontextmanager
async def shipped(folder: Path) -> AsyncIterator[tuple[str, Accounts]]:
    """URL and accounts of a nats-server that refuses nothing to those that use it."""
    accounts = Accounts(folder / "keys")
    async with EmbeddedServer(config=accounts.config) as server:
        yield server.url, accounts
        refused = violations(server.tail(100_000))
    assert not refused, refused[:3]


def violations(log: str) -> list[str]:
    """What a nats-server says was refused to whom."""
    return re.findall(r".*Violation.*", log)
