"""The keys of NATS: what is there stays, what is missing is made, two at most are accepted."""

import nkeys
import pytest

from muster.runtime.natsaccounts import earlier_setting, nkey_setting
from muster.runtime.natskeys import KeyRing, UnknownUserError

USERS = ("watcher", "quota_accountant")
WATCHER, BEFORE = nkey_setting("watcher"), earlier_setting("watcher")


def public_of(seed: bytes) -> str:
    return str(nkeys.from_seed(bytearray(seed)).public_key.decode())


def test_every_user_has_a_key_and_a_place_that_no_seed_opens() -> None:
    ring = KeyRing(USERS)
    assert ring.seeds.keys() == {*USERS}
    assert public_of(ring.seeds["watcher"]) == ring.public[WATCHER]
    assert len({*ring.public.values()}) == 2 * len(USERS)


def test_what_is_there_stays() -> None:
    before = KeyRing(USERS)
    again = KeyRing((*USERS, "preemptor"), before.conf())
    assert again.seeds.keys() == {"preemptor"}
    assert {name: again.public[name] for name in before.public} == before.public


def test_a_file_of_an_earlier_version_gets_the_second_places() -> None:
    made = KeyRing(USERS)
    lines = [line for line in made.conf().splitlines() if "_BEFORE" not in line]
    ring = KeyRing(USERS, "# by hand\n" + "\n".join(lines).replace(":", " ="))
    assert not ring.seeds
    assert ring.public[WATCHER] == made.public[WATCHER]
    assert BEFORE in ring.public


def test_a_rotated_key_and_the_one_before_it_are_accepted() -> None:
    first = KeyRing(USERS)
    second = KeyRing(USERS, first.conf())
    second.rotate(["watcher"])
    assert second.public[BEFORE] == first.public[WATCHER]
    assert second.public[WATCHER] == public_of(second.seeds["watcher"])
    assert second.seeds.keys() == {"watcher"}
    third = KeyRing(USERS, second.conf())
    third.retire(["watcher"])
    assert not third.seeds
    assert third.public[WATCHER] == second.public[WATCHER]
    assert third.public[BEFORE] not in {*first.public.values(), *second.public.values()}


def test_an_unknown_user_is_named_and_nothing_is_changed() -> None:
    ring = KeyRing(USERS)
    before = dict(ring.public)
    with pytest.raises(UnknownUserError, match=r"no user of NATS is named wacher; there are watcher, quota_accountant"):
        ring.rotate(["watcher", "wacher"])
    assert ring.public == before


def test_a_user_of_another_layout_has_a_key_that_no_seed_opens_until_it_is_rotated() -> None:
    ring = KeyRing((*USERS, "deciders"), unused={"deciders"})
    assert ring.seeds.keys() == {*USERS}
    again = KeyRing((*USERS, "deciders"), ring.conf())
    assert not again.seeds
    again.rotate(["deciders"])
    assert public_of(again.seeds["deciders"]) == again.public[nkey_setting("deciders")]
