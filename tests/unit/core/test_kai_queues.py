"""KAI queues in force: compiled with the nodes, beside an ElasticQuotaTree, and who is led to them."""

from __future__ import annotations

from kit import nodes
from kit.bench import Bench
from kit.facts import seen, tree
from kit.kai import queue, queue_gone, work
from kit.words import in_words
from muster.core.objects.kaiqueue import KIND, read_kai_queue
from muster.core.quota.ledger.quotaledger import Ledger
from muster.core.quota.trees import kaisource
from muster.core.reading.watched import KAI_QUEUES, WATCHED
from muster.core.stage import Folder
from muster.events.base import Event
from muster.events.decisions import (
    EvictionOrdered,
    QuotaDenied,
    QuotaReserved,
    QuotaTreeAccepted,
    QuotaTreeRemoved,
    WorkloadQueued,
    WorkloadRefused,
)
from muster.model.keys import Ref
from muster.model.quota import KAI_ROOT
from muster.model.resources import EVERYTHING
from muster.told.presentation.queuestatus import kai_status
from muster.told.readmodel.model import ReadModel
from muster.told.wording.events import tell

GPU = "nvidia.com/gpu"
TEAMS = (queue("department-1"), queue("team-a", "department-1", gpu=(2, -1, 1)), queue("team-b", "department-1"))


def bench(*facts: Event, gpus: int = 4) -> Bench:
    found = Bench()
    found.facts(nodes.node("n1", cpu=64, memory=256, gpu=gpus), *facts)
    found.synced()
    found.settle()
    return found


def ledger(found: Bench) -> Ledger:
    state: Ledger = found.states["quota_accountant"].ledger
    return state


def said(found: Bench, *facts: Event) -> list[Event]:
    found.facts(*facts)
    return found.settle()


def refusal(found: Bench, *facts: Event) -> tuple[str, str]:
    told = [event for event in said(found, *facts) if isinstance(event, WorkloadRefused)]
    assert len(told) == 1, told
    return told[0].refusal.reason, tell(told[0]).text.removeprefix("it is not queued: ")


def test_the_shard_is_the_one_the_accountant_waits_for() -> None:
    assert kaisource.SHARD == KAI_QUEUES
    assert WATCHED[KAI_QUEUES].kind == KIND == kaisource.REF.kind


def test_the_queues_are_one_tree_whose_root_is_what_the_nodes_have() -> None:
    found = bench(*reversed(TEAMS))
    tree = ledger(found).trees[KAI_ROOT]
    assert [node.path for node in tree.nodes] == [
        "kai",
        "kai/department-1",
        "kai/department-1/team-a",
        "kai/department-1/team-b",
    ]
    assert tree.rule_profile == "kai"
    assert tree.nodes[0].limit == {"cpu": 64_000, "memory": 256 * 2**30, GPU: 4_000}
    assert tree.nodes[2].guaranteed == {"cpu": EVERYTHING, "memory": EVERYTHING, GPU: 2_000}
    more = said(found, nodes.node("n2", cpu=64, memory=256, gpu=4))
    assert [type(event) for event in more] == [QuotaTreeAccepted]
    assert ledger(found).trees[KAI_ROOT].nodes[0].limit[GPU] == 8_000
    assert said(found, nodes.node("n2", cpu=64, memory=256, gpu=4)) == [], "a newer version that says the same"


def test_nothing_is_in_force_without_a_queue() -> None:
    found = bench(TEAMS[0])
    assert KAI_ROOT in ledger(found).trees
    gone = said(found, queue_gone("department-1"))
    assert [type(event) for event in gone] == [QuotaTreeRemoved]
    assert ledger(found).trees == {}


def test_a_bad_queue_disables_what_is_below_it_and_nothing_else() -> None:
    found = bench(
        *TEAMS,
        queue("lost", "nowhere"),
        queue("below", "lost"),
        queue("odd", gpu=(-2, -1, 1)),
        queue("a", "b"),
        queue("b", "a"),
        queue("bare", quota={}, limit={}, weight={}),
        queue("hasty", preempt_min_runtime="soon"),
    )
    tree = ledger(found).trees[KAI_ROOT]
    assert [node.name for node in tree.nodes[1:]] == ["department-1", "team-a", "team-b"]
    assert {name: in_words(reason).partition(";")[0] for name, reason in tree.disabled.items()} == {
        "lost": "parentQueue 'nowhere' does not exist",
        "below": "it is below lost, which is disabled: parentQueue 'nowhere' does not exist",
        "odd": "spec.resources: quota -2 of nvidia.com/gpu is no amount",
        "a": "parentQueue leads in a circle: a → b → a",
        "b": "parentQueue leads in a circle: b → a → b",
        "bare": "spec.resources: resources must be specified",
        "hasty": "spec.preemptMinRuntime: 'soon' is not a span of time like 90s, 10m or 1h30m",
    }
    told = refusal(found, seen(work("j", "below")))
    assert told[0] == "queue_unknown"
    assert told[1].startswith("Queue 'below' is disabled: it is below lost")


def test_what_the_nodes_cannot_give_now_starts_when_they_can() -> None:
    """No user set the capacity of the nodes that are ready: it changes by itself, and the sentence says so."""
    found = bench(*TEAMS, gpus=8)
    denied = [event for event in said(found, seen(work("big", "team-a", gpu=12))) if isinstance(event, QuotaDenied)]
    assert [tell(event).text for event in denied] == [
        "Exceeds quota(nvidia.com/gpu) in the cluster: request 12, capacity 8. It starts once the nodes that are ready "
        "have as much: add nodes, or lower the request"
    ]
    more = said(found, nodes.node("n2", cpu=64, memory=256, gpu=8))
    assert [event.ref.name for event in more if isinstance(event, QuotaReserved)] == ["big"]


def test_work_is_led_by_its_label_and_charged_on_every_level() -> None:
    found = bench(*TEAMS)
    events = said(found, seen(work("j", "team-a", gpu=1)))
    assert [event.queue for event in events if isinstance(event, WorkloadQueued)] == ["kai/department-1/team-a"]
    assert any(isinstance(event, QuotaReserved) for event in events)
    used = ledger(found).used
    assert [used[path][GPU] for path in ("kai", "kai/department-1", "kai/department-1/team-a")] == [1_000] * 3
    denied = [event for event in said(found, seen(work("k", "team-b", gpu=4))) if isinstance(event, QuotaDenied)]
    [short] = [event.short for event in denied if event.short]
    assert (short.path, short.resource, short.used, short.limit) == ("kai", GPU, 1_000, 4_000)


def test_who_has_no_queue_is_told_what_would_help() -> None:
    found = bench(*TEAMS)
    assert refusal(found, seen(work("none"))) == (
        "queue_label_missing",
        "Queue label missing from RayJob; pods will remain pending: add label kai.scheduler/queue with one of "
        "team-a, team-b",
    )
    assert refusal(found, seen(work("typo", "team-x"))) == (
        "queue_unknown",
        "Queue 'team-x' does not exist: create it, or name one of team-a, team-b in label kai.scheduler/queue",
    )
    assert refusal(found, seen(work("inner", "department-1"))) == (
        "queue_unknown",
        "Queue 'department-1' has queues below it, and takes no work itself: name one of team-a, team-b",
    )
    events = said(found, queue("team-x", "department-1"))
    assert [event.ref.name for event in events if isinstance(event, WorkloadQueued)] == ["typo"], "once it exists"


def test_the_default_queue_takes_what_names_none() -> None:
    found = bench(*TEAMS, queue("default-parent-queue"), queue("default-queue", "default-parent-queue"))
    events = said(found, seen(work("j", gpu=1)))
    assert [event.queue for event in events if isinstance(event, WorkloadQueued)] == [
        "kai/default-parent-queue/default-queue"
    ]


def test_trees_and_queues_stand_side_by_side() -> None:
    found = bench(tree(), *TEAMS)
    assert [*ledger(found).trees] == ["root", KAI_ROOT]
    events = said(found, seen(work("ours", namespace="video")), seen(work("theirs", "team-a", gpu=1)))
    assert sorted(event.queue for event in events if isinstance(event, QuotaReserved)) == [
        "kai/department-1/team-a",
        "root/algorithm/video",
    ]
    both = refusal(found, seen(work("both", "team-a", namespace="video")))
    assert both == (
        "two_quotas",
        "label kai.scheduler/queue names queue team-a, and namespace video belongs to quota root/algorithm/video of an "
        "ElasticQuotaTree: it can be charged to one of them only; remove label kai.scheduler/queue, or "
        "take the namespace out of that quota",
    )
    named = work("named", "team-a", labels={"quota.scheduling.alibabacloud.com/name": "text"})
    assert refusal(found, seen(named))[0] == "two_quotas"


def test_a_label_for_queues_means_nothing_where_there_are_none() -> None:
    found = bench(tree())
    events = said(found, seen(work("j", "team-a", namespace="video")))
    assert [event.queue for event in events if isinstance(event, QuotaReserved)] == ["root/algorithm/video"]


def test_who_is_not_preemptible_stays_within_the_quota_at_every_level() -> None:
    found = bench(queue("department-1", gpu=(3, -1, 1)), queue("team-a", "department-1", gpu=(2, -1, 1)))
    said(found, seen(work("one", "team-a", priority_class="build", gpu=1)))
    assert ledger(found).firm["kai/department-1/team-a"][GPU] == 1_000
    denied = [
        event
        for event in said(found, seen(work("two", "team-a", priority_class="inference", gpu=2)))
        if isinstance(event, QuotaDenied)
    ]
    [short] = [event.short for event in denied if event.short]
    assert (short.path, short.resource, short.of_min) == ("kai/department-1/team-a", GPU, True)
    for name, labels in (("train", {}), ("said", {"kai.scheduler/preemptibility": "preemptible"})):
        chosen = "build" if labels else "train"
        events = said(found, seen(work(name, "team-a", priority_class=chosen, labels=labels, gpu=1)))
        assert any(isinstance(event, QuotaReserved) for event in events), name
    firm = {"kai.scheduler/preemptibility": "non-preemptible"}
    events = said(found, seen(work("firm", "team-a", labels=firm, gpu=1)))
    assert any(isinstance(event, QuotaReserved) for event in events)
    assert ledger(found).firm["kai/department-1/team-a"][GPU] == 2_000


def test_priorities_are_those_of_the_label_then_of_the_pods_then_of_train() -> None:
    found = bench(*TEAMS)
    cases = {
        "a": work("a", "team-a", priority_class="inference", priority=7),
        "b": work("b", "team-a", priority=7),
        "c": work("c", "team-a"),
        "d": work("d", "team-a", priority_class="unheard-of"),
    }
    events = said(found, *(seen(each) for each in cases.values()))
    assert {event.ref.name: event.priority for event in events if isinstance(event, WorkloadQueued)} == {
        "a": 125,
        "b": 7,
        "c": 50,
        "d": 50,
    }


def test_the_status_says_what_is_below_what_is_used_and_asked_for() -> None:
    found = bench(*TEAMS, queue("lost", "nowhere"))
    said(found, seen(work("j", "team-a", priority_class="build", gpu=1)), seen(work("k", "team-b", gpu=4)))
    view = ReadModel()
    folder, state = Folder(view), view.initial()
    for stored in found.log:
        folder.fold(state, stored)
    by_name = {each.name: each for each in state.kai_queues.values()}
    top = kai_status(state, by_name["department-1"])
    assert top is not None
    assert top.body["childQueues"] == ["team-a", "team-b"]
    assert (top.body["allocated"][GPU], top.body["allocatedNonPreemptible"][GPU]) == ("1", "1")
    assert top.body["requested"][GPU] == "5"
    lost = kai_status(state, by_name["lost"])
    assert lost is not None
    assert lost.body["conditions"][0]["reason"] == "Disabled"
    assert "does not exist" in lost.body["conditions"][0]["message"]


def test_a_status_that_is_shown_is_not_written_again() -> None:
    raw = b"""{"metadata": {"name": "q", "uid": "u", "resourceVersion": "3"},
        "spec": {"resources": {"gpu": {"quota": 0.5, "limit": -1}, "cpu": {}}, "priority": 7},
        "status": {"childQueues": [], "allocated": {"cpu": "0"}, "conditions": [
            {"type": "Ready", "status": "True", "reason": "Counts", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}"""
    read = read_kai_queue(raw)
    assert read.quota == {"cpu": "0", GPU: "0.5", "memory": "0"}
    assert read.limit == {"cpu": "0", GPU: "-1", "memory": "0"}
    assert read.priority == 7
    assert read.shown
    assert not read_kai_queue(raw.replace(b"Counts", b"Counts").replace(b'"conditions"', b'"others"')).shown


def test_a_queue_takes_its_fair_share_back_and_no_more() -> None:
    found = bench(queue("a", gpu=(1, -1, 1)), queue("b", gpu=(1, -1, 1)))
    for name in ("b1", "b2", "b3", "b4"):
        asked = work(name, "b", gpu=1)
        said(found, seen(asked))
        said(found, seen(work(name, "b", gpu=1, suspended=False, phase="running", settled=False)))
    ordered = [event for event in said(found, seen(work("mine", "a", gpu=2))) if isinstance(event, EvictionOrdered)]
    assert [len(event.victims) for event in ordered] == [2]
    assert ordered[0].queue == "kai/a"
    more = said(found, seen(work("greedy", "a", gpu=3)))
    assert not any(isinstance(event, EvictionOrdered) for event in more), "three are beyond its fair share"


def test_what_runs_in_a_deleted_queue_is_left_alone_until_the_queue_is_back() -> None:
    """It stays charged, and no claimant of another queue stumbles over it."""
    mine, theirs = queue("a", gpu=(1, -1, 1)), queue("b", gpu=(1, -1, 1))
    found = bench(mine, theirs)
    for name in ("b1", "b2", "b3", "b4"):
        said(found, seen(work(name, "b", gpu=1)))
        said(found, seen(work(name, "b", gpu=1, suspended=False, phase="running", settled=False)))
    said(found, queue_gone("b"))
    assert ledger(found).used[KAI_ROOT][GPU] == 4_000
    events = said(found, seen(work("mine", "a", gpu=2)))
    assert not any(isinstance(event, EvictionOrdered) for event in events), "it has no share to be above"
    again = queue("b", gpu=(1, -1, 1), ref=Ref(KIND, "", "b", "queue-b-2"))
    ordered = [event for event in said(found, again) if isinstance(event, EvictionOrdered)]
    assert [len(event.victims) for event in ordered] == [2]


def test_what_is_owed_gets_it_when_a_lost_node_is_back() -> None:
    """It was refused as more than the cluster has: by now it is not, and others use what it is owed."""
    lost = nodes.node("n2", cpu=64, memory=256, gpu=2)
    found = bench(queue("a", gpu=(3, -1, 1)), queue("b", gpu=(0, -1, 1)), gpus=2)
    for name in ("b1", "b2"):
        said(found, seen(work(name, "b", gpu=1)))
        said(found, seen(work(name, "b", gpu=1, suspended=False, phase="running", settled=False)))
    events = said(found, seen(work("mine", "a", gpu=3)))
    [refused] = [event for event in events if isinstance(event, QuotaDenied)]
    assert refused.reason == "exceeds_limit"
    ordered = [event for event in said(found, lost) if isinstance(event, EvictionOrdered)]
    assert [len(event.victims) for event in ordered] == [1]
