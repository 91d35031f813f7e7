"""Tables: the columns of each resource, and how kubectl writes an age."""

from typing import Any

import pytest

from kit.crds import definitions
from muster.fakecluster.apiserver.tables import age, columns_of, human_duration, table


@pytest.mark.parametrize("definition", definitions(), ids=lambda found: found["metadata"]["name"])
def test_our_columns_are_those_of_the_definitions(definition: dict[str, Any]) -> None:
    wanted = definition["spec"]["versions"][0]["additionalPrinterColumns"]
    found = columns_of(definition["metadata"]["name"])[1:]
    assert [
        {"name": column.name, "type": column.type, "jsonPath": column.source, "priority": column.priority}
        for column in found
    ] == [{"priority": 0, **column} for column in wanted]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (192, "3m12s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (11_100, "3h5m"),
        (30_000, "8h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (900_000, "10d"),
    ],
)
def test_ages_are_written_as_kubectl_writes_them(seconds: int, text: str) -> None:
    assert human_duration(seconds * 1000) == text


def test_ages_of_odd_stamps() -> None:
    assert age(None, 0) == "<unknown>"
    assert age("yesterday", 0) == "<invalid>"
    assert age("1970-01-01T00:00:00Z", 5_000) == "5s"


def test_a_pod_as_kubectl_shows_it() -> None:
    pod = {
        "metadata": {"name": "p", "namespace": "n", "creationTimestamp": "1970-01-01T00:00:00Z"},
        "spec": {"containers": [{}, {}], "nodeName": "n1"},
        "status": {"phase": "Pending"},
    }
    assert _cells(pod) == ["p", "0/2", "ContainerCreating", 0, "60s", None, "n1"]
    states = [{"ready": True, "restartCount": 1}, {"ready": False}]
    pod["status"] = {"phase": "Running", "containerStatuses": states, "podIP": "10.0.0.1"}
    assert _cells(pod) == ["p", "1/2", "Running", 1, "60s", "10.0.0.1", "n1"]
    pod["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:01Z"  # type: ignore[index]
    assert _cells(pod)[2] == "Terminating"


def _cells(pod: dict[str, Any]) -> list[Any]:
    cells: list[Any] = table("pods", [pod], {}, 60_000)["rows"][0]["cells"]
    return cells


def test_what_has_no_columns_of_its_own_shows_name_and_age() -> None:
    assert [column.name for column in columns_of("widgets.example.com")] == ["Name", "Age"]


def test_values_that_are_no_scalars_are_shown_in_short() -> None:
    unit = {"metadata": {"name": "u"}, "status": {"admissions": [{"name": "head", "replicas": 1}]}}
    row = table("queueunits.scheduling.x-k8s.io", [unit], {}, 0, include="None")["rows"][0]
    assert row == {"cells": ["u", None, None, None, '[{"name":"head","replicas":1}]', None, None, "<unknown>"]}
