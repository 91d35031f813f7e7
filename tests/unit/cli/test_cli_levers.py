"""The levers of an operator: the patches they make, and what they say."""

import json
from pathlib import Path
from typing import Any

import pytest

from kit import facts
from kit.scenario import Play
from kit.story import quota_tree
from muster.told.readmodel.readstate import ReadState
from muster.told.views.narrator import Narrator
from muster_cli.exits import NOT_FOUND, USAGE, CliError
from muster_cli.levers import above_all, is_settled, job_named, standing_line
from muster_cli.marking import patch_of, short, user_here
from muster_cli.pausing import pausing, resuming, targets_of
from muster_cli.quotadiff import FieldChange, difference
from muster_cli.quotafiles import Linted, read_trees
from muster_cli.removal import is_our_queue, is_our_unit
from muster_cli.render.quotas import diff_lines, lint_lines

TEST_UID = {"op": "test", "path": "/metadata/uid", "value": "u1"}


def state_after(*lines: str) -> ReadState:
    scene = Play()
    for line in lines:
        scene.line(line)
        scene.settle()
    narrator = Narrator()
    for stored in scene.bench.log:
        narrator.feed(stored)
    return narrator.state


@pytest.fixture(scope="module")
def busy() -> ReadState:
    return state_after("tree", "synced", "job one", "job two", "job three prio=7", "job text/deep cpu=4 memory=1G")


# --- patches ------------------------------------------------------------------------------------------------------


def test_a_patch_tests_the_uid_and_touches_only_its_annotations() -> None:
    meta = {"annotations": {"a/b": "1", "gone": "x"}, "resourceVersion": "5"}
    assert patch_of(meta, "u1", {"a/b": "2", "gone": None, "absent": None}) == [
        TEST_UID,
        {"op": "add", "path": "/metadata/annotations/a~1b", "value": "2"},
        {"op": "remove", "path": "/metadata/annotations/gone"},
    ]


def test_annotations_are_only_made_where_nobody_has_meanwhile() -> None:
    assert patch_of({"resourceVersion": "5"}, "u1", {"k": "v"})[:3] == [
        TEST_UID,
        {"op": "test", "path": "/metadata/resourceVersion", "value": "5"},
        {"op": "add", "path": "/metadata/annotations", "value": {}},
    ]


def test_reasons_are_one_short_line() -> None:
    assert short("  two\n lines\t") == "two lines"
    assert len(short("x" * 999)) == 200


# --- jobs ---------------------------------------------------------------------------------------------------------


def test_a_job_is_found_by_name_or_said_to_be_none(busy: ReadState) -> None:
    for name in ("two", "video/two", "rayjob/video/two"):
        assert job_named(busy, name).ref.key == "video/two"
    with pytest.raises(CliError, match="did you mean video/three") as missing:
        job_named(busy, "video/threes")
    assert missing.value.code == NOT_FOUND
    again = state_after("tree", "synced", "job one", "job text/one cpu=1 memory=1G")
    with pytest.raises(CliError, match="rayjob/text/one, rayjob/video/one") as several:
        job_named(again, "one")
    assert several.value.code == USAGE


def test_jumping_goes_one_above_the_highest_that_waits(busy: ReadState) -> None:
    uid = {each.ref.key: each.ref.uid for each in busy.queues.workloads.values()}
    assert above_all(busy, uid["video/two"]) == 8
    assert above_all(busy, uid["video/three"]) is None
    with pytest.raises(CliError, match="it has its quota in root/algorithm/video already"):
        above_all(busy, uid["video/one"])
    assert standing_line(busy, uid["video/two"]).startswith("position 2 of 2 in queue root/algorithm/video; Insuff")
    assert all(is_settled(busy, each) for each in uid.values())


# --- pauses -------------------------------------------------------------------------------------------------------


def test_pausing_adds_and_resuming_takes_away() -> None:
    one = pausing("evictions", "ann", "a reason")({})
    assert one == {
        "muster.dev/paused": "evictions",
        "muster.dev/paused-by": "ann",
        "muster.dev/paused-reason": "a reason",
    }
    present = {key: value for key, value in one.items() if value is not None}
    both = pausing("admissions", "bob", "another")(present)
    assert both["muster.dev/paused"] == "admissions,evictions"
    assert both["muster.dev/paused-by"] == "bob"
    assert resuming("admissions")({"muster.dev/paused": "admissions,evictions"}) == {"muster.dev/paused": "evictions"}
    assert resuming("evictions")(present) == dict.fromkeys(one)
    assert resuming("admissions")(present) == {}


def test_resuming_evictions_enables_reclaim_only_where_nobody_has_decided() -> None:
    assert resuming("evictions", enable=True)({}) == {"muster.dev/reclaim": "enabled"}
    assert resuming("evictions", enable=True)({"muster.dev/reclaim": "disabled"}) == {}


def test_a_pause_needs_a_tree_and_a_queue_that_is_there(busy: ReadState) -> None:
    assert [target.name for target in targets_of(busy, "")] == ["ElasticQuotaTree kube-system/elasticquotatree"]
    with pytest.raises(CliError, match="there is no queue root/nowhere; there are root/algorithm/video"):
        targets_of(busy, "root/nowhere")
    with pytest.raises(CliError, match="no quota tree is in force"):
        targets_of(state_after("synced"), "")


# --- trees in files -----------------------------------------------------------------------------------------------


def written(folder: Path, body: dict[str, Any]) -> Linted:
    path = folder / "tree.yaml"
    path.write_text(json.dumps(body))
    return read_trees(path)[0]


def leaf(body: dict[str, Any], *names: str) -> dict[str, Any]:
    node: dict[str, Any] = body["spec"]["root"]
    for name in names:
        node = next(child for child in node["children"] if child["name"] == name)
    return node


def test_a_good_tree_is_ok_and_a_broken_one_is_told_rule_by_rule(tmp_path: Path) -> None:
    good = written(tmp_path, quota_tree())
    assert good.broken == []
    assert lint_lines(good)[-1].plain.startswith("ok       ElasticQuotaTree kube-system/elasticquotatree: ")
    body = quota_tree()
    leaf(body, "algorithm", "video")["min"] = {"cpu": "90"}
    leaf(body, "algorithm", "text")["max"] = {"cpu": "many"}
    lines = [line.plain for line in lint_lines(written(tmp_path, body))]
    assert any(line.startswith("broken   root/algorithm/video: min cpu 90 is over max") for line in lines)
    assert any(line.startswith("broken   root/algorithm/text: max cpu") for line in lines)
    assert "it would be refused as a whole" in lines[-1]


def test_what_is_odd_is_a_warning(tmp_path: Path) -> None:
    body = quota_tree(namespace="default")
    body["metadata"]["annotations"] = {"muster.dev/recliam": "enabled", "muster.dev/reclaim": "enabled"}
    leaf(body, "algorithm", "video")["max"]["cpu"] = "999"
    leaf(body, "algorithm", "text").pop("namespaces")
    found = written(tmp_path, body)
    assert found.broken == []
    told = {(each.path, each.rule) for each in found.warnings}
    assert {
        ("metadata.namespace", "namespace"),
        ("metadata.annotations", "annotation"),
        ("root/algorithm/video", "max_over_parent"),
        ("root/algorithm/text", "no_namespace"),
    } <= told
    assert sum(each.rule == "annotation" for each in found.warnings) == 1


def test_a_file_without_a_tree_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="no such file"):
        read_trees(tmp_path / "missing.yaml")
    with pytest.raises(CliError, match="holds no ElasticQuotaTree"):
        written(tmp_path, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})


def test_a_file_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text("[" * 5000)
    with pytest.raises(CliError, match="nested too deeply") as refused:
        read_trees(path)
    assert refused.value.code == USAGE


def test_the_same_tree_makes_no_difference(busy: ReadState, tmp_path: Path) -> None:
    tree = written(tmp_path, quota_tree(facts.t0())).tree
    assert tree is not None
    found = difference(busy, tree)
    assert (found.added, found.removed, found.changed, found.over, found.fits) == ([], [], [], [], [])
    assert diff_lines(found)[0].plain == "The tree is the same as the one in force."


def test_what_applying_a_file_keeps_is_no_change(tmp_path: Path) -> None:
    marks = {"muster.dev/paused": "admissions", "muster.dev/paused-by": "ann", "muster.dev/min-run": "10m"}
    in_force = quota_tree(facts.t0())
    in_force["metadata"]["annotations"] = marks
    tree = written(tmp_path, in_force).tree
    assert tree is not None
    paused = state_after("tree", "synced")
    paused.queues.ledger.install(tree)
    plain_file = written(tmp_path, quota_tree(facts.t0()))
    assert plain_file.tree is not None
    found = difference(paused, plain_file.tree, plain_file.rules)
    assert found.kept == ["paused"]
    assert [change.what for change in found.changed] == ["min-run-ms"], "apply takes away what a file had set"
    assert any("muster.dev/paused is not in the file" in line.plain for line in diff_lines(found))
    stated = difference(paused, plain_file.tree, {"paused": ""})
    assert "paused" in [change.what for change in stated.changed]


def test_resuming_says_who_and_why_where_something_changes() -> None:
    present = {"muster.dev/paused": "evictions", "muster.dev/paused-by": "ann"}
    found = resuming("evictions", by="bob", reason=" it is\nover ")(present)
    assert (found["muster.dev/changed-by"], found["muster.dev/change-reason"]) == ("bob", "it is over")
    assert resuming("admissions", by="bob", reason="x")(present) == {}


def test_an_author_has_a_name_without_USER() -> None:
    import getpass

    assert user_here({}) == getpass.getuser()
    assert user_here({"USER": "ann"}) == "ann"


def test_a_larger_leaf_lets_in_and_a_smaller_one_is_over_its_max(busy: ReadState, tmp_path: Path) -> None:
    body = quota_tree()
    video = leaf(body, "algorithm", "video")
    before = video["max"]["cpu"]
    video["max"].update(cpu="25", memory="40Gi")
    larger = written(tmp_path, body).tree
    assert larger is not None
    used_before = json.dumps(sorted(busy.queues.ledger.used.items()))
    found = difference(busy, larger)
    assert FieldChange("root/algorithm/video", "max cpu", before, "25") in found.changed
    assert [each.job for each in found.fits] == ["video/three", "video/two"]
    assert json.dumps(sorted(busy.queues.ledger.used.items())) == used_before, "what is looked at is not changed"
    video["max"].update(cpu="8")
    video["min"].update(cpu="8")
    smaller = written(tmp_path, body).tree
    assert smaller is not None
    shrunk = difference(busy, smaller)
    assert [(each.path, each.used, each.limit) for each in shrunk.over] == [("root/algorithm/video", "12", "8")]
    assert [each.job for each in shrunk.hopeless] == ["video/three", "video/two"]
    lines = [line.plain for line in diff_lines(shrunk)]
    assert "over its max  root/algorithm/video: 12 cpu in use, max 8" in lines
    assert any(line.startswith("can never fit  video/two in root/algorithm/video: cpu") for line in lines)


def test_a_leaf_that_goes_takes_its_jobs_out_of_their_queue(busy: ReadState, tmp_path: Path) -> None:
    body = quota_tree()
    algorithm = leaf(body, "algorithm")
    algorithm["children"] = [child for child in algorithm["children"] if child["name"] != "video"]
    tree = written(tmp_path, body).tree
    assert tree is not None
    found = difference(busy, tree)
    assert found.removed == ["root/algorithm/video"]
    assert [each.job for each in found.unqueued] == ["video/three", "video/two"]
    assert [each.job for each in found.unclaimed] == ["video/one"]


# --- what is ours -------------------------------------------------------------------------------------------------


def test_only_what_muster_made_is_removed() -> None:
    owned = {"ownerReferences": [{"kind": "RayJob"}]}
    assert is_our_unit({**owned, "annotations": {"muster.dev/shown": "x"}})
    assert not is_our_unit(owned)
    assert not is_our_unit({"annotations": {"muster.dev/shown": "x"}})
    label = {"create-by-kubequeue": "true"}
    made = {"namespace": "kube-queue", "labels": label, "annotations": {"muster.dev/made": "true"}}
    assert is_our_queue(made)
    assert not is_our_queue({"namespace": "kube-queue", "labels": label}), "it is a kube-queue's"
    assert not is_our_queue({**made, "namespace": "default"})
    assert not is_our_queue({"namespace": "kube-queue"})
