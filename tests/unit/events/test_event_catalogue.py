"""docs/events.md says what the code does, of every event."""

import pytest

from kit.compose import REPOSITORY
from muster.core.cell.deciders import DECIDERS
from muster.events.public import PUBLIC_TYPES
from muster.events.registry import EVENT_TYPES
from muster_tools.catalogue import emitters, folders, page, published, redelivery

UNUSED: set[str] = set()
"""Events that nobody emits yet."""


def test_the_page_is_what_the_code_says() -> None:
    assert (REPOSITORY / "docs" / "events.md").read_text() == page(), "run `make schemas`"


@pytest.mark.parametrize("tag", EVENT_TYPES)
def test_every_event_has_somebody_who_emits_it(tag: str) -> None:
    assert bool(emitters()[tag]) is (tag not in UNUSED)


@pytest.mark.parametrize("tag", EVENT_TYPES)
def test_of_every_event_it_is_said_what_a_redelivery_does(tag: str) -> None:
    assert redelivery(tag)


def test_a_decision_is_emitted_by_one_stage_only() -> None:
    found = {
        "workload_queued": ["queue_sorter"],
        "quota_reserved": ["quota_accountant"],
        "quota_released": ["quota_accountant"],
        "gang_admitted": ["gang_admitter"],
        "effect_applied": ["actuator"],
        "workload_started": ["watcher"],
    }
    assert {tag: emitters()[tag] for tag in found} == found


def test_who_folds_is_read_from_the_stages() -> None:
    told = folders()
    for name, make in DECIDERS.items():
        for kind in make().arms():
            said = told[str(kind.__struct_config__.tag)]
            assert name in said or said == ["every stage"]


def test_every_public_event_comes_from_the_log() -> None:
    assert {name for names in published().values() for name in names} == set(PUBLIC_TYPES)
