"""The keys of the users of NATS: made, changed, and ended. The servers know the public halves (keys.conf).

A user has two places there. A new key takes the first place, and the former key goes to the second: the servers accept
both until the second key is ended. A place without a key holds a key whose seed was thrown away, so that the accounts,
which name the places, never change.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence

import nkeys  # type: ignore[import-untyped]

from muster.runtime.natsaccounts import earlier_setting, nkey_setting

_LINE = re.compile(r'^\s*(MUSTER_NKEY_\w+)\s*[:=]\s*"?(U[A-Z2-7]{55})"?\s*$', re.MULTILINE)


class UnknownUserError(Exception):
    """There is no such user of NATS."""


def has_keys(conf: str) -> bool:
    """Whether a text has a line of keys.conf."""
    return _LINE.search(conf) is not None


class KeyRing:
    """``conf``: the present keys.conf; its keys stay, and missing keys of ``users`` are made.

    ``unused``: users without a seed until a rotation of their key.
    """

    def __init__(self, users: Sequence[str], conf: str = "", *, unused: Collection[str] = ()) -> None:
        self.users = users
        self.public: dict[str, str] = dict(_LINE.findall(conf))
        """{setting: public key}"""
        self.seeds: dict[str, bytes] = {}
        """{user: the seed it has from now on}: of keys that were made here"""
        for user in users:
            if nkey_setting(user) not in self.public and user in unused:
                self.public[nkey_setting(user)] = _made().public_key.decode()
            elif nkey_setting(user) not in self.public:
                self._new(user)
            if earlier_setting(user) not in self.public:
                self._end(user)

    def rotate(self, users: Iterable[str]) -> None:
        """Give each user a new key; the servers accept the key before too."""
        for user in self._known(users):
            self.public[earlier_setting(user)] = self.public[nkey_setting(user)]
            self._new(user)

    def retire(self, users: Iterable[str]) -> None:
        """End the former key of each user."""
        for user in self._known(users):
            self._end(user)

    def conf(self) -> str:
        """What keys.conf has to be."""
        return "".join(f'{setting}: "{key}"\n' for setting, key in self.public.items())

    def _new(self, user: str) -> None:
        pair = _made()
        self.public[nkey_setting(user)] = pair.public_key.decode()
        self.seeds[user] = bytes(pair.seed)

    def _end(self, user: str) -> None:
        self.public[earlier_setting(user)] = _made().public_key.decode()

    def _known(self, users: Iterable[str]) -> list[str]:
        listed = list(users)
        for user in listed:
            if user not in self.users:
                raise UnknownUserError(f"no user of NATS is named {user}; there are {', '.join(self.users)}")
        return listed


def _made() -> nkeys.KeyPair:
    return nkeys.from_seed(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER))
