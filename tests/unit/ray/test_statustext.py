"""The text of `ray status`: what old and new Ray write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.raydemand import RayShape
from muster.ray.errors import GarbledError
from muster.ray.statustext import WaitingGroups, parse_status

OLD = """======== Autoscaler status: 2023-04-05 06:07:08.000900 ========
Node status
---------------------------------------------------------------
Healthy:
 1 head-group
 2 small-group
Pending:
 10.0.0.7: small-group, setting-up
 large-group, 3 launching
Recent failures:
 small-group: NodeTerminated (ip: 10.0.0.9)

Resources
---------------------------------------------------------------
Usage:
 1.5/2.0 CPU
 0B/1.50GiB memory
 0.0/1.0 GPU (0.0 used of 1.0 reserved in placement groups)
Demands:
 {'CPU': 1.0}: 2+ pending tasks/actors
 {'CPU': 1.0} * 3 (STRICT_SPREAD): 1+ pending placement groups
 {'CPU': 4.0}: 2+ from request_resources()
"""

NEW = """2026-01-02 03:04:05,678 INFO --
======== Autoscaler status: 2026-01-02 03:04:05.678901 ========
GCS request time: 0.001000s

Node status
---------------------------------------------------------------
Active:
 1 headgroup
Idle:
 2 small
Pending:
 small, 1 launching
 pod-7: small, ray installing
Recent failures:
 small: LaunchFailed (latest_attempt: 03:04:00) - denied
 small: NodeTerminated (instance_id: pod-3)

Resources
---------------------------------------------------------------
Total Usage:
 0.0/2.0 CPU
 0B/15.74GiB memory
 0B/6.75GiB object_store_memory

From request_resources:
 {'CPU': 4.0}: 2 from request_resources()
Pending Demands:
 {'CPU': 1.0}: 12+ pending tasks/actors (2+ using placement groups)
 {'CPU': 1.0, 'GPU': 1.0, 'memory': 1073741824.0}: 1+ pending tasks/actors
 {'CPU': 1.0} * 2, {'GPU': 1.0} * 1 (PACK): 4+ pending placement groups

Node: pod-1 (small)
 Id: aa
 Usage:
  1.0/1.0 CPU
 Activity:
  Busy workers on node.
"""


def test_the_old_text() -> None:
    found = parse_status(OLD)
    assert found.time == "2023-04-05 06:07:08.000900"
    assert found.active == {"head-group": 1, "small-group": 2}
    assert found.idle == {}
    assert found.coming == {"10.0.0.7": ("small-group", "setting-up")}
    assert found.launching == {"large-group": 3}
    assert found.failures == [("small-group", "NodeTerminated")]
    assert found.usage == {"CPU": (1.5, 2.0), "memory": (0.0, 1.5 * 2**30), "GPU": (0.0, 1.0)}
    assert found.waiting == (RayShape({"CPU": 10_000}, 2),)
    assert found.groups == [WaitingGroups("STRICT_SPREAD", (RayShape({"CPU": 10_000}, 3),), 1)]
    assert found.requested == (RayShape({"CPU": 40_000}, 2),)
    assert found.passed_over == 0


def test_the_new_text() -> None:
    found = parse_status(NEW)
    assert found.active == {"headgroup": 1}
    assert found.idle == {"small": 2}
    assert found.launching == {"small": 1}
    assert found.coming == {"pod-7": ("small", "ray installing")}
    assert found.failures == [("small", "LaunchFailed"), ("small", "NodeTerminated")]
    assert found.requested == (RayShape({"CPU": 40_000}, 2),)
    assert found.waiting == (
        RayShape({"CPU": 10_000}, 10),
        RayShape({"CPU": 10_000, "GPU": 10_000, "memory": 2**30 * 10_000}),
    )
    bundles = (RayShape({"CPU": 10_000}, 2), RayShape({"GPU": 10_000}))
    assert found.groups == [WaitingGroups("PACK", bundles, 4)]
    assert found.passed_over == 0


def test_a_settled_cluster_has_no_demand() -> None:
    empty = "(no resource demands)"
    text = f"==== Autoscaler status: 1 2 ====\nHealthy:\n 1 head\nPending:\n (no pending nodes)\nDemands:\n {empty}\n"
    found = parse_status(text)
    assert (found.waiting, found.groups, found.requested, found.passed_over) == ((), [], (), 0)


def test_sections_of_a_newer_ray_are_passed_over() -> None:
    found = parse_status(NEW.replace("Total Usage:", "Weather:\n sunny\nTotal Usage:\n 7 of nothing"))
    assert found.usage["CPU"] == (0.0, 2.0)
    assert found.passed_over == 1


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "starting"),
        ("No cluster status. It may take a few seconds for the Ray internal services to start up.", "starting"),
        (NEW[: NEW.index("Pending Demands")], "half a status"),
        (NEW.replace("{'CPU': 4.0}", "{'CPU': __import__('os')}"), "not a bundle"),
        (NEW.replace("{'CPU': 4.0}", "{'CPU': -4.0}"), "not an amount"),
        (NEW.replace("{'CPU': 4.0}", "{'CPU'}"), "not a bundle"),
        (NEW + " " * 5_000_000, "characters"),
    ],
    ids=["nothing", "starting", "half", "code", "negative", "set", "huge"],
)
def test_what_is_no_status_is_refused(text: str, what: str) -> None:
    with pytest.raises(GarbledError, match=what):
        parse_status(text)


@given(st.integers(0, len(NEW)), st.text(max_size=20))
def test_no_text_does_more_than_be_refused(at: int, noise: str) -> None:
    for text in (NEW[:at] + noise, NEW[:at] + noise + NEW[at:]):
        try:
            parse_status(text)
        except GarbledError:
            continue
