"""``muster quota shares``: who gets how much of what there is, and why."""

import io
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from muster_cli import exits
from muster_cli.main import run

QUEUE = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: %s}
spec:
  %s
  resources:
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    gpu: %s
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
"""


def queue(name: str, gpu: str, more: str = "displayName: ''") -> str:
    return QUEUE % (name, more, gpu)


def shares(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *options: str
) -> dict[str, Any]:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert run(["quota", "shares", "--queues", "-", "-o", "json", *options]) == exits.OK
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def by_name(found: dict[str, Any], column: str = "fair_share") -> dict[str, Any]:
    return {each["name"]: each[column] for each in found["queues"]}


def test_a_table_of_plain_numbers(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    table = {
        "total": 100,
        "queues": [{"name": "a", "quota": 10, "request": 100, "weight": 3}, {"name": "b", "quota": 10}],
    }
    found = shares(json.dumps(table), capsys, monkeypatch)
    assert by_name(found) == {"a": 70, "b": 30}
    assert by_name(found, "guarantee") == {"a": 10, "b": 10}
    assert by_name(found, "allocatable") == {"a": 70, "b": 30}
    assert by_name(found, "request") == {"a": 100, "b": None}
    why = by_name(found, "why")["a"]
    assert "10 of its quota of 10" in why, why
    assert "60 of a surplus of 80 at priority 100, where its weight is worth 75 %" in why, why


def test_amounts_by_resource_and_down_the_levels(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {
        "total": {"gpu": 8, "cpu": "4", "memory": "1Gi"},
        "queues": [
            {"name": "top", "quota": {"gpu": 6}},
            {"name": "left", "parent": "top", "weight": 3},
            {"name": "right", "parent": "top", "request": {"gpu": 1}},
            {"name": "other", "request": {"gpu": 2, "memory": 5}},
        ],
    }
    found = shares(json.dumps(table), capsys, monkeypatch)
    assert found["total"] == {"gpu": 8, "cpu": 4000, "memory": 1073.741824}
    assert {name: each["gpu"] for name, each in by_name(found).items()} == {
        "top": 7,
        "left": 6,
        "right": 1,
        "other": 1,
    }
    assert by_name(found)["top"]["memory"] == 1068.741824
    assert by_name(found)["other"]["cpu"] == 0
    assert by_name(found, "parent") == {"top": None, "left": "top", "right": "top", "other": None}


def test_kai_queues(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = "---".join(
        [
            queue("department-1", "{quota: -1, limit: -1, overQuotaWeight: 1}"),
            queue("team-a", "{quota: 0.5, limit: 4, overQuotaWeight: 2}", "parentQueue: department-1"),
            queue("team-b", "{}", "parentQueue: department-1"),
            queue("lost", "{quota: 1}", "parentQueue: department-9"),
            queue("below", "{quota: 1}", "parentQueue: lost"),
            queue("odd", "{quota: -2}"),
        ]
    )
    found = shares(text, capsys, monkeypatch, "--total", "gpu=8,cpu=64000")
    assert {name: each["gpu"] for name, each in by_name(found).items()} == {
        "department-1": 8,
        "team-a": 4,
        "team-b": 0,
    }
    assert by_name(found, "allocatable")["department-1"]["gpu"] == -1
    assert by_name(found)["team-b"]["cpu"] == 64000
    reasons = {each["name"]: each["reason"] for each in found["disabled"]}
    assert reasons["lost"] == (
        "parentQueue 'department-9' does not exist; create it, or name one of "
        "below, department-1, lost, odd, team-a, team-b"
    )
    assert reasons["below"].startswith("it is below lost, which is disabled: parentQueue 'department-9' does not exist")
    assert reasons["odd"] == (
        "spec.resources: quota -2 of nvidia.com/gpu is no amount; write 0 or more, or -1 for unlimited"
    )


def test_an_over_subscribed_total_is_a_warning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {"total": 8, "queues": [{"name": "a", "quota": 6}, {"name": "b", "quota": 6}]}
    found = shares(json.dumps(table), capsys, monkeypatch)
    assert by_name(found) == {"a": 6, "b": 6}
    assert [each["detail"] for each in found["warnings"]] == [
        "the quotas of the top queues sum up to 12, over the total of 8: they cannot all be guaranteed; "
        "lower them or add more"
    ]


def test_children_that_are_promised_more_than_their_parent_are_a_warning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"name": "top", "quota": 2.5}, {"name": "a", "parent": "top", "quota": 4, "limit": 3}]
    found = shares(json.dumps({"total": 8, "queues": rows}), capsys, monkeypatch)
    assert [each["detail"] for each in found["warnings"]] == [
        "the quotas of its children sum up to 4, over its own 2.5: they cannot all be guaranteed; lower them",
        "quota 4 is over its limit 3: never reached",
    ]


def test_what_is_to_be_shared_follows_from_the_top_queues(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "---".join([queue("a", "{quota: 3, limit: -1}"), queue("b", "{quota: 1, limit: -1, overQuotaWeight: 1}")])
    found = shares(text, capsys, monkeypatch, "--request", "a=gpu=1")
    assert found["total"] == {"gpu": 4}
    assert {name: each["gpu"] for name, each in by_name(found).items()} == {"a": 1, "b": 3}
    assert "say it with --total" in found["warnings"][0]["detail"]


def test_a_tree_says_what_it_divides_by(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["quota", "shares", "--queues", "services/muster_cli/samples/quota-tree.yaml", "-o", "json"]) == exits.OK
    found = json.loads(capsys.readouterr().out)
    video = next(each for each in found["queues"] if each["name"] == "root/algorithm/video")
    assert video["guarantee"]["nvidia.com/gpu"] == "2"
    assert video["allocatable"]["nvidia.com/gpu"] == "4"
    assert "this tree does not divide by weight" in video["why"]["nvidia.com/gpu"]


def test_the_table_for_people(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "queues.json"
    path.write_text('{"total": 7, "queues": [{"name": "a"}, {"name": "b"}, {"name": "c", "quota": "many"}]}')
    assert run(["quota", "shares", "--queues", str(path)]) == exits.OK
    out, err = capsys.readouterr()
    head = " ".join(out.splitlines()[0].split())
    assert head == "QUEUE FAIR SHARE GUARANTEE REQUEST LIMIT WEIGHT PRIORITY ALLOCATABLE"
    assert " ".join(out.splitlines()[1].split()) == "a 4 0 all unlimited 1 100 4"
    assert "b: asks for all there is; no quota; 3 of a surplus of 7 at priority 100" in out
    assert err == "queue c is disabled: quota of queue c is 'many'; write a number\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{queues: []}", "total is missing; write what there is to share"),
        ("{total: 8, queues: 7}", "queues must be a list of {name, ...}"),
        ("{total: 8, queues: [{quota: 1}]}", "queue 1 has the name ''; write one without a slash"),
        ("{total: 8, queues: [{name: a}, {name: a}]}", "queue a is written twice; leave one out"),
        ("{total: many, queues: []}", "total is 'many'; write a number"),
        ("{total: 8, k: -1, queues: []}", "k is -1; write 0 for no heed of past usage, or more"),
        ("{total: -8, queues: [{name: a}]}", "total is -8; write 0 or more"),
        ("{total: 8, queues: [], share: 1}", "'share' is unknown; known are total, queues, k"),
        ("{total: 8, queues: [{name: a, qouta: 1}]}", "queue a: 'qouta' is unknown; known are name, parent, priority"),
        ("", "standard input is empty; write Queues, an ElasticQuotaTree, or {total, queues: [...]}"),
        ("{total: [", "standard input is neither YAML nor JSON"),
        ("{apiVersion: v1, kind: Pod, metadata: {name: a}}", "standard input holds no Queue and no ElasticQuotaTree"),
    ],
)
def test_what_cannot_be_read_is_said_with_the_way_out(
    text: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert run(["quota", "shares", "--queues", "-"]) == exits.USAGE
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"quota": -3}, "quota -3 is no amount; write 0 or more, or -1 for unlimited"),
        ({"weight": -1}, "overQuotaWeight -1 is no amount; write 0 for no surplus, or more"),
        ({"request": -1}, "request of queue a is -1; write 0 or more"),
        ({"limit": {"gpu": 3}}, 'limit of queue a is {"gpu": 3}, but total is one number; write one'),
        ({"priority": "high"}, "priority of queue a is 'high'; write a whole number, the higher the earlier"),
        ({"parent": "a"}, "parentQueue leads in a circle: a → a; leave it out on one of them"),
    ],
)
def test_a_queue_that_cannot_be_used_disables_itself(
    row: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {"total": 8, "queues": [{"name": "a", **row}, {"name": "b"}]}
    found = shares(json.dumps(table), capsys, monkeypatch)
    assert by_name(found) == {"b": 8}
    assert [each["reason"] for each in found["disabled"]] and words in found["disabled"][0]["reason"]


GOLDEN: list[tuple[int, list[dict[str, Any]], list[float]]] = [
    (100, [{"quota": 10, "request": 100, "weight": 3}, {"quota": 10, "request": 100}], [70, 30]),
    (
        10,
        [{"quota": 2, "weight": 2, "priority": 2}, {"quota": 2, "priority": 2}, {"quota": 3, "priority": 1}],
        [4, 3, 3],
    ),
    (7, [{}, {}], [4, 3]),
    (8, [{"request": 1}, {}, {}], [1, 4, 3]),
    (8, [{"limit": 3}, {}], [3, 5]),
    (8, [{"quota": 6, "request": 8}, {"quota": 6, "request": 8}], [6, 6]),
    (8, [{"quota": -1, "request": 8}, {"quota": -1, "request": 8}], [8, 8]),
    (8, [{"quota": 2, "request": 8, "weight": 0}, {"quota": 2, "request": 8}], [2, 6]),
    (1, [{"request": 1}, {"request": 1}], [1, 0]),
    (1, [{"request": 0.5}, {"request": 0.5}], [0.5, 0.5]),
    (16, [{"usage": 0.5}, {}], [5, 11]),
    (10, [{"request": 6, "priority": 2}, {"weight": 100, "priority": 1}], [6, 4]),
    (1, [{"request": 8, "limit": 0.5}, {"request": 8, "limit": 0.5}, {"request": 8, "limit": 0.5}], [1, 0, 0]),
    (
        33,
        [
            {"quota": 0.1, "request": 50, "weight": 0.7, "priority": 2, "usage": 0.1},
            {"quota": 0.1, "request": 0.5, "weight": 0, "usage": 0.1, "priority": 1},
            {"request": 50, "weight": 2, "limit": 0.5, "priority": 1},
            {"quota": 5, "request": 50, "weight": 1, "priority": 2},
            {"quota": 5, "request": 0.3, "weight": 0, "usage": 0.1, "priority": 1},
        ],
        [10.1, 0.1, 0.5, 22, 0.3],
    ),
]
"""What KAI Scheduler's own function gives; for the last it gives two answers, and exact numbers this one."""


@pytest.mark.parametrize(("total", "rows", "given"), GOLDEN)
def test_the_shares_are_those_of_kai_whatever_the_order_of_the_file(
    total: int,
    rows: list[dict[str, Any]],
    given: list[float],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named = [{"name": f"q{index}", **row} for index, row in enumerate(rows)]
    for queues in itertools.islice(itertools.permutations(named), 24):
        table = {"total": total, "queues": list(queues), "k": 1}
        assert by_name(shares(json.dumps(table), capsys, monkeypatch)) == {
            f"q{i}": each for i, each in enumerate(given)
        }
    by_resource = {"total": {"gpus": total}, "queues": named}
    found = shares(json.dumps(by_resource), capsys, monkeypatch)
    assert by_name(found) == {f"q{i}": {"gpu": each} for i, each in enumerate(given)}


@pytest.mark.parametrize(("total", "rows", "given"), [each for each in GOLDEN if "usage" not in str(each[1])])
def test_queue_objects_share_as_the_table_does(
    total: int,
    rows: list[dict[str, Any]],
    given: list[float],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts, options = [], ["--total", f"gpu={total}"]
    for index, row in enumerate(rows):
        gpu = {"quota": row.get("quota", 0), "limit": row.get("limit", -1), "overQuotaWeight": row.get("weight", 1)}
        texts.append(queue(f"q{index}", json.dumps(gpu), f"priority: {row.get('priority', 100)}"))
        options += ["--request", f"q{index}=gpu={row['request']}"] if "request" in row else []
    for order in (texts, texts[::-1]):
        found = by_name(shares("\n---\n".join(order), capsys, monkeypatch, *options))
        assert {name: share["gpu"] for name, share in found.items()} == {f"q{i}": each for i, each in enumerate(given)}
