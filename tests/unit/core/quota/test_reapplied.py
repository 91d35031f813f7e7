"""What a tree says of manifests that are applied again: deploy/policies asks, and no stage; it is checked anyway."""

from kit import facts
from kit.words import in_words
from muster.core.quota.trees.rules import KNOWN
from muster.core.quota.trees.treesource import read_tree


def broken(rule: str = "", attribute: str = "") -> list[str]:
    marks = {"reapplied": attribute} if attribute else {}
    leaf = facts.node("a", {"cpu": 0}, {"cpu": 4}, ("a",), **marks)
    root = facts.node("root", {"cpu": 4}, {"cpu": 4}, children=(leaf,))
    _, found = read_tree(facts.tree(root, rules={"reapplied": rule} if rule else {}))
    return [in_words(each) for each in found]


def test_what_a_tree_says_of_manifests_that_are_applied_again_is_checked() -> None:
    assert "reapplied" in KNOWN
    for said in ("refuse", "keep-running"):
        assert broken(rule=said) == broken(attribute=said) == []
    told = "'keep' is neither refuse nor keep-running"
    assert broken(rule="keep") == [f"root: annotation muster.dev/reapplied: {told}"]
    assert broken(attribute="keep") == [f"root/a: attribute muster.dev/reapplied: {told}"]
