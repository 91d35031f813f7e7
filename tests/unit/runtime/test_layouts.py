"""Every layout runs every service once, and a process is known by its services."""

from collections import Counter

import pytest

from muster.runtime.layouts import LAYOUTS, SERVICES, UnknownServiceError, members, process_name, services_of


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_runs_every_service_once(layout: str) -> None:
    assert Counter(service for process in LAYOUTS[layout] for service in members(process)) == Counter(SERVICES)


@pytest.mark.parametrize(
    ("named", "process"),
    [
        (["queue-sorter"], "queue-sorter"),
        (["queue_sorter", "quota_accountant"], "quota-accountant+queue-sorter"),
        (["deciders"], "deciders"),
        (["deciders", "preemptor"], "deciders"),
        (["all"], "all"),
        ([each for each in SERVICES if each != "keeper"], "all"),
        (["all", "keeper"], "+".join(SERVICES).replace("_", "-")),
    ],
)
def test_a_process_is_named_by_its_services(named: list[str], process: str) -> None:
    chosen = services_of(named)
    assert process_name(chosen) == process
    assert members(process) == chosen


def test_an_unknown_service_is_named_with_those_that_there_are() -> None:
    with pytest.raises(UnknownServiceError, match=r"no service 'sorter'; there are watcher, .*deciders, all"):
        services_of(["sorter"])
