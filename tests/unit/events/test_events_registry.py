"""The vocabulary: every event type is in it once, under the name of its class."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import msgspec
import pytest

import muster.events
import muster.model
from muster.events.base import Decision, Event, tag_of
from muster.events.registry import EVENT_TYPES, encode
from muster.model.quota import QuotaTree


def event_classes() -> list[type[Event]]:
    """Every event struct defined below muster.events, except the bases that others are made from."""
    found: list[type[Event]] = []
    for module in pkgutil.iter_modules(muster.events.__path__):
        names = vars(importlib.import_module(f"muster.events.{module.name}"))
        found += [
            each
            for each in names.values()
            if isinstance(each, type) and issubclass(each, Event) and each.__module__.endswith(module.name)
        ]
    return [each for each in found if each not in (Event, Decision) and not each.__subclasses__()]


def test_no_event_type_is_forgotten() -> None:
    assert set(event_classes()) == set(EVENT_TYPES.values())
    assert len(EVENT_TYPES) == len(set(EVENT_TYPES.values()))


def test_the_tag_is_the_name_of_the_class() -> None:
    assert {tag: tag_of(kind.__name__) for tag, kind in EVENT_TYPES.items()} == {tag: tag for tag in EVENT_TYPES}
    assert tag_of("WorkloadObserved") == "workload_observed"
    assert tag_of("Genesis") == "genesis"


def test_an_event_is_frozen_and_says_what_it_is() -> None:
    for tag, kind in EVENT_TYPES.items():
        assert kind.__struct_config__.frozen, kind
        assert kind.__struct_config__.tag == tag
        assert kind.__doc__, kind


def test_sets_are_written_in_order() -> None:
    names = {f"name-{number}" for number in range(40)}
    assert encode(names) == encode(sorted(names))


@pytest.mark.parametrize("package", [muster.events, muster.model], ids=lambda package: package.__name__)
def test_no_value_is_looked_at_by_the_garbage_collector(package: ModuleType) -> None:
    """There are hundreds of thousands of them in a state, none refers to itself, and a log is read twice as fast. Of
    trees there are few: a tree keeps what its readers have worked out.
    """
    found = 0
    for module in pkgutil.iter_modules(package.__path__):
        for kind in vars(importlib.import_module(f"{package.__name__}.{module.name}")).values():
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not msgspec.Struct:
                found += 1
                assert kind.__struct_config__.frozen, kind
                assert kind is QuotaTree or not kind.__struct_config__.gc, kind
    assert found > 10
