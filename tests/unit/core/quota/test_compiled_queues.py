"""What KAI queues come to as nodes of the quota model: each meaning of -1, 0 and nothing, and what is left out."""

from __future__ import annotations

from random import Random

import pytest

from kit.kai import queue
from kit.words import in_words
from muster.core.quota.trees.kaisource import compile_queues, tree_of, unit_of
from muster.core.quota.trees.rules import USAGE_WINDOW_MS
from muster.core.quota.trees.treesource import MAX_DEPTH, MAX_NODES, MAX_PATH
from muster.model.kaiqueue import KaiQueue
from muster.model.keys import Ref
from muster.model.quota import QuotaNode
from muster.model.resources import EVERYTHING, MAX_AMOUNT

GPU = "nvidia.com/gpu"


def one(quota: str = "0", limit: str = "-1", weight: str = "1", resource: str = GPU, **changes: object) -> KaiQueue:
    fields = {"quota": {resource: quota}, "limit": {resource: limit}, "weight": {resource: weight}}
    return queue("q", **fields | changes).queue  # type: ignore[arg-type]


def node_of(**changes: str) -> QuotaNode:
    compiled = compile_queues([one(**changes)])
    assert not compiled.disabled
    return compiled.nodes[1]


def wrong(**changes: str) -> str:
    compiled = compile_queues([one(**changes)])
    assert [node.path for node in compiled.nodes] == ["kai"]
    return in_words(compiled.disabled["q"])


@pytest.mark.parametrize(
    ("text", "guaranteed"),
    [
        ("-1", {GPU: EVERYTHING}),
        ("0", {}),
        ("2", {GPU: 2000}),
        ("0.5", {GPU: 500}),
        ("0.0004", {}),
        ("1.9999", {GPU: 1999}),
    ],
)
def test_what_a_quota_means(text: str, guaranteed: dict[str, int]) -> None:
    assert node_of(quota=text).guaranteed == guaranteed


@pytest.mark.parametrize(("text", "limit"), [("-1", {}), ("0", {GPU: 0}), ("2", {GPU: 2000}), ("0.5", {GPU: 500})])
def test_what_a_limit_means(text: str, limit: dict[str, int]) -> None:
    assert node_of(limit=text).limit == limit


@pytest.mark.parametrize(("text", "weight"), [("0", 0), ("1", 1000), ("0.25", 250), ("3", 3000)])
def test_what_a_weight_means(text: str, weight: int) -> None:
    for resource in (GPU, "cpu", "memory"):
        assert node_of(weight=text, resource=resource).weight == {resource: weight}


def test_each_resource_has_its_unit() -> None:
    """Thousandths of a CPU, 10^6 bytes, devices."""
    assert [unit_of(name) for name in ("cpu", "memory", GPU, "example.com/fpga")] == [1, 10**6, 1000, 1000]
    assert node_of(quota="1500", limit="2000", resource="cpu").limit == {"cpu": 2000}
    assert node_of(quota="64", resource="memory").guaranteed == {"memory": 64 * 10**6}
    table = compile_queues([one(quota="2", limit="3", weight="0.5")], {GPU: 7})
    assert (table.nodes[1].guaranteed, table.nodes[1].limit, table.nodes[1].weight) == ({GPU: 14}, {GPU: 21}, {GPU: 3})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"quota": "-2"}, f"quota -2 of {GPU} is no amount; write 0 or more, or -1 for unlimited"),
        ({"limit": "-0.5"}, f"limit -0.5 of {GPU} is no amount; write 0 or more, or -1 for unlimited"),
        ({"weight": "-1"}, f"overQuotaWeight -1 of {GPU} is no amount; write 0 for no surplus, or more"),
        ({"quota": "many"}, f"quota many of {GPU} is no amount; write 0 or more, or -1 for unlimited"),
        ({"quota": "1e3"}, f"quota 1e3 of {GPU} is no amount; write 0 or more, or -1 for unlimited"),
        ({"quota": str(MAX_AMOUNT)}, f"quota {MAX_AMOUNT} of {GPU} is no amount; write 0 or more, or -1 for unlimited"),
    ],
)
def test_what_is_no_amount(changes: dict[str, str], said: str) -> None:
    assert wrong(**changes) == f"spec.resources: {said}"
    assert node_of(quota=str(MAX_AMOUNT // 1000)).guaranteed == {GPU: MAX_AMOUNT // 1000 * 1000}


def test_what_else_disables_a_queue() -> None:
    nothing = compile_queues([queue("q", quota={}, limit={}, weight={}).queue])
    assert in_words(nothing.disabled["q"]).startswith("spec.resources: resources must be specified")
    assert not compile_queues([queue("q", limit={}).queue]).disabled, "a quota alone is enough"
    assert not compile_queues([queue("q", quota={}).queue]).disabled, "and so is a limit"
    for field in ("preempt", "reclaim"):
        broken = compile_queues([queue("q", **{f"{field}_min_runtime": "soon"}).queue])  # type: ignore[arg-type]
        assert in_words(broken.disabled["q"]).startswith(f"spec.{field}MinRuntime: 'soon' is not a span")
    times = compile_queues([queue("q", preempt_min_runtime="1m", reclaim_min_runtime="2m").queue]).nodes[1]
    assert (times.preempt_min_run_ms, times.reclaim_min_run_ms) == (60_000, 120_000)


def test_a_priority_that_is_not_set_is_100_and_0_is_0() -> None:
    for priority, expected in ((None, 100), (0, 0), (7, 7)):
        assert compile_queues([queue("q", priority=priority).queue]).nodes[1].priority == expected


FOREST = (
    queue("top", created=5),
    queue("a", "top", created=2),
    queue("b", "top", created=1),
    queue("lost", "nowhere", created=0),
    queue("below-lost", "lost", created=0),
    queue("x", "y", created=0),
    queue("y", "x", created=0),
    queue("tail", "y", created=0),
    queue("bad", "top", gpu=(-2, -1, 1), created=0),
    queue("below-bad", "bad", created=0),
)


def test_a_bad_subtree_takes_nobody_along_whatever_the_order() -> None:
    expected = compile_queues(each.queue for each in FOREST)
    assert [node.path for node in expected.nodes] == ["kai", "kai/top", "kai/top/b", "kai/top/a"]
    assert expected.nodes[0].children == ("kai/top",) and expected.nodes[1].children == ("kai/top/b", "kai/top/a")
    assert {name: in_words(reason).partition(";")[0] for name, reason in expected.disabled.items()} == {
        "lost": "parentQueue 'nowhere' does not exist",
        "below-lost": "it is below lost, which is disabled: parentQueue 'nowhere' does not exist",
        "x": "parentQueue leads in a circle: x → y → x",
        "y": "parentQueue leads in a circle: y → x → y",
        "tail": "parentQueue leads in a circle: y → x → y",
        "bad": f"spec.resources: quota -2 of {GPU} is no amount",
        "below-bad": f"it is below bad, which is disabled: spec.resources: quota -2 of {GPU} is no amount",
    }
    for seed in range(20):
        assert compile_queues(each.queue for each in Random(seed).sample(FOREST, len(FOREST))) == expected
    assert compile_queues([]).nodes == ()


def test_the_reason_names_some_queues_that_exist() -> None:
    many = [queue(f"q{number}", "nowhere" if not number else "").queue for number in range(9)]
    assert in_words(compile_queues(many).disabled["q0"]).endswith("name one of q0, q1, q2, q3, q4, q5, q6, q7, …")
    assert in_words(compile_queues(many[:8]).disabled["q0"]).endswith("name one of q0, q1, q2, q3, q4, q5, q6, q7")


def test_of_two_of_one_name_the_older_counts() -> None:
    old, young = queue("q", gpu=(1, -1, 1), created=1).queue, queue("q", gpu=(2, -1, 1), created=2).queue
    found = compile_queues([young, KaiQueue(**{f: getattr(old, f) for f in old.__struct_fields__})])
    assert [node.guaranteed[GPU] for node in found.nodes[1:]] == [1000]
    twins = [
        queue("q", gpu=(amount, -1, 1), ref=Ref("Queue", "", "q", uid)).queue for amount, uid in ((1, "b"), (2, "a"))
    ]
    assert [node.guaranteed[GPU] for node in compile_queues(twins).nodes[1:]] == [2000]


def test_how_deep_and_how_long_a_path_may_be() -> None:
    line = [queue(f"q{level}", f"q{level - 1}" if level else "").queue for level in range(MAX_DEPTH)]
    found = compile_queues(line)
    assert len(found.nodes) == MAX_DEPTH and found.nodes[-1].path.count("/") == MAX_DEPTH - 1
    said = f"it is {MAX_DEPTH} levels deep, more than {MAX_DEPTH - 1}; move it under a higher queue"
    assert {name: in_words(why) for name, why in found.disabled.items()} == {f"q{MAX_DEPTH - 1}": said}
    for length, fits in ((MAX_PATH - len("kai/"), True), (MAX_PATH - len("kai/") + 1, False)):
        name = "n" * length
        found = compile_queues([queue(name).queue])
        assert (len(found.nodes) == 2) is fits
        assert fits or in_words(found.disabled[name]).startswith(
            f"the names from the top down to it are longer than {MAX_PATH}"
        )


def test_too_many_queues_are_none() -> None:
    queues = [queue(f"q{number}").queue for number in range(MAX_NODES + 1)]
    assert set(map(in_words, compile_queues(queues).disabled.values())) == {
        f"there are {MAX_NODES + 1} queues, more than {MAX_NODES}; delete some"
    }
    assert not compile_queues(queues[:-1]).disabled


@pytest.mark.parametrize(
    ("parent", "children", "said"),
    [
        (4, (2, 2), ""),
        (4, (2, 3), "the quotas of its children sum up to nvidia.com/gpu 5, over its own 4: they cannot all be"),
        (0, (1, 0), "the quotas of its children sum up to nvidia.com/gpu 1, over its own 0: they cannot all be"),
        (-1, (7, 9), ""),
        (4, (-1, 0), ""),
    ],
)
def test_over_subscription_is_a_warning(parent: int, children: tuple[int, int], said: str) -> None:
    queues = [queue("top", gpu=(parent, -1, 1)).queue]
    queues += [queue(name, "top", gpu=(amount, -1, 1)).queue for name, amount in zip("ab", children, strict=True)]
    found = compile_queues(queues)
    assert len(found.nodes) == 4 and not found.disabled
    assert [in_words(each).partition(": ")[2][: len(said)] for each in found.warnings] == ([said] if said else [])
    assert all((each.path, each.rule) == ("kai/top", "over_subscribed") for each in found.warnings)


def test_a_quota_over_its_limit_is_a_warning() -> None:
    for quota, limit, count in ((3, 2, 1), (2, 2, 0), (1, 2, 0), (-1, 2, 0), (3, -1, 0), (0, 0, 0)):
        found = compile_queues([queue("q", gpu=(quota, limit, 1)).queue])
        assert len(found.warnings) == count, (quota, limit)
    [said] = compile_queues([queue("q", gpu=(3, 2, 1)).queue]).warnings
    assert in_words(said) == "kai/q: quota nvidia.com/gpu 3 is over its limit 2: never reached"


def test_the_tree_shares_what_the_nodes_have_and_knows_who_takes_what_names_none() -> None:
    compiled = compile_queues([queue("q").queue, queue("default-queue", "q").queue])
    tree = tree_of(compiled, {GPU: 8000, "cpu": 5, "example.com/fpga": 3})
    assert tree.nodes[0].limit == {GPU: 8000, "cpu": 5, "memory": 0}
    assert tree.nodes[0].guaranteed == {GPU: EVERYTHING, "cpu": EVERYTHING, "memory": EVERYTHING}
    assert [node.preempts for node in tree.nodes] == [False, True, True]
    assert (tree.root, tree.by_shares, tree.profile) == ("kai", True, "full")
    assert (tree.rules.unbound_queue, tree.rules.reclaim) == ("kai/q/default-queue", "enabled")
    inner = compile_queues([queue("default-queue").queue, queue("q", "default-queue").queue])
    assert tree_of(inner, {}).rules.unbound_queue == "", "one with queues below it takes nothing itself"
    assert tree.rules.usage_window_ms == 0
    past = compile_queues([queue("q", rules={"usage-half-life": "1m"}).queue])
    assert tree_of(past, {}).rules.usage_window_ms == USAGE_WINDOW_MS


def test_warnings_come_in_the_order_of_the_resources() -> None:
    for names in ((GPU, "cpu"), ("cpu", GPU)):
        above = queue("top", quota=dict.fromkeys(names, "3"), limit=dict.fromkeys(names, "2")).queue
        below = queue("q", "top", quota=dict.fromkeys(names, "4"), limit=dict.fromkeys(names, "-1")).queue
        warnings = compile_queues([above, below]).warnings
        assert [each.rule for each in warnings] == ["quota_over_limit"] * 2 + ["over_subscribed"] * 2
        assert [each.values["resource"] == "cpu" for each in warnings] == [True, False, True, False]
