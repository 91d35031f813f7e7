"""The simulated operator plays what real ones were recorded at, 1.7.0 and 1.6.2, and publishes the same.

The same in all that Muster's readers make of it, object by object and in the order of the operator's own writes. What
differs is listed below: races, and what the simulation leaves out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.compose import REPOSITORY
from kit.kuberayplayed import ordered, played, story
from kit.kuberayrecords import changes

FOLDER = REPOSITORY / "tests" / "kit" / "records" / "kuberay"
RECORDS = sorted(path for version in ("1.6.2", "1.7.0") for path in (FOLDER / version).glob("*.jsonl.gz"))

DIFFERS = {
    "raycluster-gcs-fault-tolerance": ("rc-gcsft", True, "left out: the finalizer and the Job that clean up Redis"),
    "raycluster-suspend-while-starting": ("RayCluster rc-quick", True, "race: suspended before it was seen ready"),
    "raycluster-operator-restart": ("", True, "race: a RayCluster and a RayJob that were created at once"),
    "raycronjob": ("rcj", True, "left out: RayCronJobs"),
    "1.7.0/rayjob-backofflimit-k8sjobmode": ("rj-fail-k8s", True, "race: its submitter's end was seen before its own"),
    "1.7.0/kai-rayservice": ("head", False, "race: its head serves before its kubelet says that it runs"),
}
"""{scenario: (part of the names of the objects that differ, whether the order does, why)}"""


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.name.partition('.')[0]}"


def test_all_scenarios_are_here() -> None:
    assert sum(path.parent.name == "1.7.0" for path in RECORDS) == 86


@pytest.mark.parametrize("path", RECORDS, ids=named)
def test_the_simulated_operator_publishes_what_the_real_one_did(path: Path) -> None:
    real, simulated = story([*changes(path)]), story(played(path))
    told, here = real.of(), simulated.of()
    wrong = [each for each in sorted({*told, *here}) if told.get(each) != here.get(each)]
    part, disorder, _ = DIFFERS.get(named(path), DIFFERS.get(named(path).partition("/")[2], ("", False, "")))
    if part:
        assert [each for each in wrong if part in each], f"{named(path)} differs no more: take it off the list"
        wrong = [each for each in wrong if part not in each]
    assert {each: told.get(each) for each in wrong} == {each: here.get(each) for each in wrong}
    if disorder:
        assert ordered(real) != ordered(simulated), f"{named(path)} has one order: take it off the list"
    else:
        assert ordered(real) == ordered(simulated)


def test_a_word_that_is_not_the_operators_is_noticed() -> None:
    path = FOLDER / "1.7.0" / "raycluster-suspended.jsonl.gz"
    seen = [*changes(path)]
    for change in seen:
        if change.kind == "RayCluster" and change.object.get("status", {}).get("state") == "ready":
            change.object["status"]["state"] = ""
    assert story(seen) != story([*changes(path)])
