"""Which queues let priority preempt: the tree says so, or the nearest node above; what cannot be read is refused."""

import json
from pathlib import Path

import pytest

from kit import facts
from kit.words import in_words
from muster.core.quota.trees.treesource import read_tree
from muster_cli.main import run

ASKED = {"preempt-lower-priority": "true"}
REFUSED = {"preempt-lower-priority": "false"}


def tree(*, rule: dict[str, str], upper: dict[str, str], lower: dict[str, str]) -> tuple[list[bool], list[str]]:
    """(whether root, a, a/b and c preempt, what is wrong)"""
    none = {"cpu": 0}
    leaf = facts.node("b", none, {"cpu": 4}, ("b",), **lower)
    branch = facts.node("a", none, {"cpu": 4}, children=(leaf,), **upper)
    root = facts.node("root", {"cpu": 4}, {"cpu": 4}, children=(branch, facts.node("c", none, {"cpu": 4}, ("c",))))
    read, broken = read_tree(facts.tree(root, rules=rule))
    return [node.preempts for node in read.nodes], [in_words(each) for each in broken]


@pytest.mark.parametrize(
    ("rule", "upper", "lower", "expected"),
    [
        ({}, {}, {}, [False, False, False, False]),
        (ASKED, {}, {}, [True, True, True, True]),
        ({}, ASKED, {}, [False, True, True, False]),
        (ASKED, REFUSED, {}, [True, False, False, True]),
        (ASKED, REFUSED, ASKED, [True, False, True, True]),
        (REFUSED, {}, ASKED, [False, False, True, False]),
    ],
)
def test_the_nearest_word_counts(
    rule: dict[str, str], upper: dict[str, str], lower: dict[str, str], expected: list[bool]
) -> None:
    assert tree(rule=rule, upper=upper, lower=lower) == (expected, [])


def test_what_is_neither_true_nor_false_refuses_the_tree() -> None:
    odd = {"preempt-lower-priority": "yes"}
    told = "'yes' is neither true nor false"
    assert tree(rule=odd, upper={}, lower={})[1] == [f"root: annotation muster.dev/preempt-lower-priority: {told}"]
    assert tree(rule={}, upper={}, lower=odd)[1] == [f"root/a/b: attribute muster.dev/preempt-lower-priority: {told}"]


def test_lint_knows_both_and_names_what_is_misspelt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leaf = {"name": "a", "namespaces": ["a"], "max": {"cpu": 4}, "attributes": {"muster.dev/preempt-lower": "true"}}
    meta = {"name": "t", "namespace": "kube-system", "annotations": {"muster.dev/preempt-lower-priority": "true"}}
    body = {
        "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
        "kind": "ElasticQuotaTree",
        "metadata": meta,
        "spec": {"root": {"name": "root", "min": {"cpu": 4}, "max": {"cpu": 4}, "children": [leaf]}},
    }
    (tmp_path / "tree.yaml").write_text(json.dumps(body))
    assert run(["quota", "lint", str(tmp_path / "tree.yaml")]) == 0
    said = capsys.readouterr().out
    assert "root/a" in said
    assert "attribute muster.dev/preempt-lower means nothing here" in said
    assert "preempt-lower-priority means nothing" not in said
