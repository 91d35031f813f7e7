"""The budgets of the store: the keys that the rights name fit in their buckets, all at their largest."""

from collections import Counter

from muster.bus.cell import budgeted
from muster.bus.fills import reserves
from muster.bus.streams import Limits, unbounded
from muster.runtime.natsaccounts import muster_users

OVERHEAD = 512
"""Bytes of a stored message besides its value: subject, headers, record."""
SHARED = ("KV_MUSTER_STATE_main", "KV_MUSTER_LEASE_main")


def test_no_service_can_take_the_room_of_another_in_a_bucket_that_they_share() -> None:
    budgets = {config["name"]: config for config in budgeted("main", 1, Limits())}
    keys: Counter[str] = Counter()
    # The owner of each key alone: the users of groups of services write the same ones.
    for subject in {subject for user in muster_users("main") if user.name != "admin" for subject in user.publish}:
        if subject.startswith("$KV."):
            bucket = f"KV_{subject.split('.')[1]}"
            keys[bucket] += 1
            assert "*" not in subject or bucket not in SHARED, f"{subject}: one key could fill {bucket}"
    for bucket in SHARED:
        assert 0 < keys[bucket] <= budgets[bucket]["max_msgs"]
        largest = budgets[bucket]["max_msg_size"] + OVERHEAD
        # Twice: a value is replaced by a larger one before the old one goes.
        assert 2 * keys[bucket] * largest <= budgets[bucket]["max_bytes"], bucket


def test_every_stream_has_bytes_and_those_that_refuse_have_messages() -> None:
    for config in budgeted("main", 1, Limits()):
        assert config["max_bytes"] > 0, config["name"]
        if config["discard"] == "new" and "_LOG_" not in config["name"] and "_NEXT_" not in config["name"]:
            assert config["max_msgs"] > 0, config["name"]
    assert reserves("main", Limits()) < 64 * 10**9, "the store of the manifests holds it"


def test_what_an_earlier_version_left_without_a_bound_is_found() -> None:
    wanted = {"max_bytes": 5, "max_msgs": -1, "max_msg_size": 7}
    assert unbounded(wanted, {"max_bytes": -1, "max_msgs": -1, "max_msg_size": -1}) == {
        "max_bytes": 5,
        "max_msg_size": 7,
    }
    assert unbounded(wanted, {"max_bytes": 3, "max_msgs": 9, "max_msg_size": 7}) == {}
