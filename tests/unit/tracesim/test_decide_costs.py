"""What ``muster decide`` does once, and not for every job of a state."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from kit.deciding import AB, ask, job, node, ran
from muster.core.gang.admitter import GangAdmitter
from muster.core.preemption.preemptor import Preemptor
from muster.core.queueing.sorter import QueueSorter
from muster.core.stage import Stage
from muster.tracesim.decide import reading
from muster.tracesim.decide.reading import read_state


def asked(kind: type[Stage[Any]], count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a stage is asked where so many jobs run, each since another moment."""
    decide, found = kind.decide, list[int]()

    def counted(self: Stage[Any], state: Any) -> Any:
        found.append(state.now)
        return decide(self, state)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "decide", counted)
        jobs = [ran(f"r{index}", 1, "n", queue="a") for index in range(count)]
        for index, each in enumerate(jobs):
            each["pods"][0]["started_s"] = index  # type: ignore[index]
        answer = ask(nodes=[node("n", count)], queues=AB, jobs=jobs)
    assert len(answer.running) == count
    return len(found)


@pytest.mark.parametrize("kind", [GangAdmitter, Preemptor, QueueSorter])
def test_what_runs_is_charged_before_others_look_at_it(kind: type[Stage[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(kind, 4, monkeypatch) == asked(kind, 40, monkeypatch)


PLAIN = {
    "nodes": [node("n", 2, labels={"<<": "a: b # c", "path": 'a/b\\"\t'})],
    "queues": AB,
    "jobs": [job("j", 1, queue="a", created_s=1.25, preemptible=True), {"name": "k", "queue": "b", "pods": [{}]}],
    "now_s": 3,
}


def test_plain_json_is_read_without_a_reader_of_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(PLAIN, indent=1)
    as_yaml = read_state(f"# YAML\n{text}", "state")

    def load(*_: object) -> None:
        raise AssertionError("this is JSON")

    monkeypatch.setattr(yaml, "load", load)
    assert read_state(text, "state") == as_yaml


@pytest.mark.parametrize(
    "value",
    ["1e3", "1.5e3", "1.5e+3", "NaN", '"\\u00e9"', '"\\ud83d"', '"\x7f"', '"\u2028"', '{"a": 1, "a": 2}', "1" * 5_000]
    + ["[" * depth + "]" * depth for depth in (201, 3_000)],
    ids=lambda value: repr(value[:16]),
)
def test_what_yaml_may_read_differently_is_left_to_its_reader(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class LeftError(Exception):
        pass

    def deep(_: str) -> bool:
        raise LeftError

    monkeypatch.setattr(reading, "too_deep", deep)
    with pytest.raises(LeftError):
        read_state(f'{{"nodes": [], "queues": {value}}}', "state")
