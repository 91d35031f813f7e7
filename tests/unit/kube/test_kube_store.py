"""One object per name, found by uid."""

from muster.kube.objects import ObjectMeta
from muster.kube.store import ObjectStore


def test_objects_without_a_uid_are_held_by_their_path() -> None:
    store = ObjectStore([ObjectMeta("", "a", "n", "1")])
    assert store.put(ObjectMeta("", "a", "n", "2")) == "n/a"
    assert [meta.resource_version for meta in store] == ["2"]


def test_same_name_in_another_namespace_is_another_object() -> None:
    store = ObjectStore([ObjectMeta("u1", "a", "n")])
    assert store.predecessor(ObjectMeta("u2", "a", "m")) is None
    assert store.predecessor(ObjectMeta("u2", "a", "n")) == ObjectMeta("u1", "a", "n")
    assert store.predecessor(ObjectMeta("u1", "a", "n", "5")) is None


def test_dropping_a_predecessor_late_leaves_the_successor_findable() -> None:
    store = ObjectStore([ObjectMeta("u1", "a", "n"), ObjectMeta("u2", "a", "n")])
    assert store.drop(ObjectMeta("u1", "a", "n")) == ObjectMeta("u1", "a", "n")
    assert store.drop(ObjectMeta("u1", "a", "n")) is None
    assert store.identify(ObjectMeta("", "a", "n")).uid == "u2"


def test_others_are_those_not_named_in_the_order_they_came() -> None:
    store = ObjectStore([ObjectMeta(uid) for uid in ("u3", "u1", "u2")])
    assert [meta.uid for meta in store.others({"u1"})] == ["u3", "u2"]
