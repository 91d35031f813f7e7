"""``muster decide``: states as a table, and what the real stages do about them."""

from __future__ import annotations

import json
from io import StringIO

import pytest
import yaml

from kit.compose import REPOSITORY
from kit.deciding import AB, ask, devices_of, evicted, job, node, nodes_of, ran, waiting
from kit.pages import given
from muster.tracesim.decide.reading import read_state
from muster.tracesim.decide.situation import StateFileError
from muster_cli.main import run

PAGE = REPOSITORY / "docs" / "howto" / "decide.md"

# --- gangs ----------------------------------------------------------------------------------------------------------


def test_a_gang_that_fits_is_admitted_whole_and_one_that_does_not_holds_nothing() -> None:
    found = ask(nodes=[node("n1", 2), node("n2", 2)], jobs=[job("big", 2, 2, 1), job("small", 2, 2)])
    assert nodes_of(found) == {"small": ["n1", "n2"]}
    assert waiting(found) == {"big": "ExceedsMaxQuota"}


def test_a_gang_with_quota_and_no_place_says_what_the_nodes_lack() -> None:
    found = ask(nodes=[node("n1", 2), node("n2", 2)], jobs=[job("wide", 3)])
    assert not found.admitted
    assert "nvidia.com/gpu" in found.waiting[0].text


def test_pods_beyond_the_minimum_join_one_by_one_and_after_every_gang() -> None:
    found = ask(nodes=[node("n1", 4)], jobs=[job("grows", 1, 1, 1, min_member=1), job("late", 2)])
    assert nodes_of(found) == {"grows": ["n1", "n1"], "late": ["n1"]}
    assert [(each.job, each.pods) for each in found.waiting] == [("grows", ["grows-2"])]


def test_pods_of_a_higher_priority_join_before_a_gang_of_a_lower_one() -> None:
    jobs = [job("low", 2, priority=10), job("high", 1, 1, 1, min_member=1, priority=60)]
    found = ask(nodes=[node("n1", 4)], jobs=jobs)
    assert nodes_of(found) == {"high": ["n1"] * 3}
    assert waiting(found) == {"low": "InsufficientQuota"}


def test_nobody_joins_a_gang_that_waits() -> None:
    found = ask(nodes=[node("n1", 2)], jobs=[job("gang", 2, 1, 1, min_member=2)])
    assert [(each.pods, each.code) for each in found.waiting] == [
        (["gang-0", "gang-1"], "ExceedsMaxQuota"),
        (["gang-2"], "WaitsForGang"),
    ]


def test_every_subgroup_has_its_own_minimum() -> None:
    pods = [{"gpus": 1, "subgroup": "head"}, *({"gpus": 1, "subgroup": "workers"} for _ in range(3))]
    groups = [{"name": "head", "min_member": 1}, {"name": "workers", "min_member": 2}]
    state = {"nodes": [node("n1", 3)], "jobs": [{"name": "ray", "pods": pods, "subgroups": groups}]}
    found = ask(**state)
    assert [pod.name for pod in found.admitted[0].pods] == ["ray-0", "ray-1", "ray-2"]
    assert [each.pods for each in found.waiting] == [["ray-3"]]
    assert not ask(**{**state, "nodes": [node("n1", 2)]}).admitted


def test_what_is_missing_of_a_gang_that_runs_is_placed_pod_by_pod() -> None:
    pods = [{"gpus": 1, "phase": "Running", "node": "n1"}, {"gpus": 1}, {"gpus": 1}]
    found = ask(nodes=[node("n1", 2)], jobs=[{"name": "half", "pods": pods}])
    assert nodes_of(found) == {"half": ["n1"]}
    assert [each.pods for each in found.waiting] == [["half-2"]]


# --- queues -----------------------------------------------------------------------------------------------------------


def test_a_queue_borrows_what_others_leave() -> None:
    found = ask(nodes=[node("n1", 4)], queues=AB, jobs=[job("x", 4, queue="a")])
    assert nodes_of(found) == {"x": ["n1"]}


def test_what_is_lent_is_reclaimed_from_who_came_last_and_no_more_than_needed() -> None:
    jobs = [ran(f"r{index}", 1, "n1", queue="b", created_s=index) for index in range(4)]
    found = ask(nodes=[node("n1", 4)], queues=AB, jobs=[*jobs, job("owed", 1, queue="a")])
    assert evicted(found) == [("r3", "owed", "reclaim")]
    assert nodes_of(found) == {"owed": ["n1"]}
    assert waiting(found).keys() == {"r3"}


def test_nothing_is_reclaimed_beyond_a_quota() -> None:
    jobs = [ran("b1", 2, "n1", queue="b"), ran("a1", 2, "n1", queue="a"), job("more", 1, queue="a")]
    found = ask(nodes=[node("n1", 4)], queues=AB, jobs=jobs)
    assert (evicted(found), found.admitted) == ([], [])


def test_a_limit_holds_whatever_is_free() -> None:
    queues = [{"name": "a", "quota": 1, "limit": 2}]
    found = ask(nodes=[node("n1", 4)], queues=queues, jobs=[job("x", 2, queue="a"), job("y", 1, queue="a")])
    assert nodes_of(found) == {"x": ["n1"]}
    assert waiting(found) == {"y": "InsufficientQuota"}


def test_a_limit_of_a_parent_holds_for_its_children_together() -> None:
    # y comes first: its queue stays within its quota with it
    queues = [{"name": "top", "quota": 2, "limit": 2}, *({**each, "parent": "top", "quota": 1} for each in AB)]
    found = ask(nodes=[node("n1", 4)], queues=queues, jobs=[job("x", 2, queue="a"), job("y", 1, queue="b")])
    assert (nodes_of(found), waiting(found)) == ({"y": ["n1"]}, {"x": "InsufficientQuota"})


def test_what_is_not_preemptible_stays_within_the_quota() -> None:
    jobs = [job("x", 2, queue="a", priority="build"), job("y", 1, queue="a", priority="build")]
    found = ask(nodes=[node("n1", 4)], queues=AB, jobs=jobs)
    assert nodes_of(found) == {"x": ["n1"]}
    assert waiting(found) == {"y": "InsufficientMinQuota"}


def test_quotas_of_several_resources() -> None:
    queues = [{"name": "a", "limit": {"gpus": 4, "cpu_milli": 1000}}]
    pods = [{"gpus": 1, "cpu_milli": 600}]
    jobs = [{"name": name, "queue": "a", "pods": pods} for name in ("x", "y")]
    found = ask(nodes=[node("n1", 4)], queues=queues, jobs=jobs)
    assert nodes_of(found) == {"x": ["n1"]}
    assert "cpu" in found.waiting[0].text


def test_a_higher_priority_of_one_queue_takes_the_place_of_a_lower() -> None:
    jobs = [ran("low", 2, "n1", queue="a", priority=50), job("high", 2, queue="a", priority=75)]
    found = ask(nodes=[node("n1", 2)], queues=[{"name": "a", "quota": 2}], jobs=jobs)
    assert evicted(found) == [("low", "high", "preempt")]
    assert nodes_of(found) == {"high": ["n1"]}


@pytest.mark.parametrize(
    "other", [{"priority": 75}, {"priority": 50, "preemptible": False}], ids=["equal priority", "not preemptible"]
)
def test_nobody_else_gives_way_to_priority(other: dict[str, object]) -> None:
    jobs = [ran("there", 2, "n1", queue="a", **other), job("new", 2, queue="a", priority=75)]
    found = ask(nodes=[node("n1", 2)], queues=[{"name": "a", "quota": 2}], jobs=jobs)
    assert (evicted(found), found.admitted) == ([], [])


def test_pods_beyond_a_minimum_give_way_before_the_gang_does() -> None:
    pods = [{"gpus": 1, "phase": "Running", "node": "n1"} for _ in range(4)]
    grown = {"name": "grown", "queue": "b", "pods": pods, "min_member": 2}
    found = ask(nodes=[node("n1", 4)], queues=AB, jobs=[grown, job("owed", 2, queue="a")])
    assert sorted(pod for each in found.evicted for pod in each.pods) == ["grown-2", "grown-3"]
    assert nodes_of(found) == {"owed": ["n1"]}


def test_kai_objects_and_elastic_quota_trees_are_taken_as_they_are() -> None:
    resources = {name: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for name in ("gpu", "cpu", "memory")}
    objects = [
        {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        for name, spec in (
            ("department-1", {"resources": resources}),
            ("team-a", {"resources": resources, "parentQueue": "department-1"}),
        )
    ]
    jobs = [job("x", 2, queue="team-a")]
    assert nodes_of(ask(nodes=[node("n1", 2)], queues=objects, jobs=jobs)) == {"x": ["n1"]}
    gpus = {"nvidia.com/gpu": 2}
    tree = {
        "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
        "kind": "ElasticQuotaTree",
        "metadata": {"name": "tree", "namespace": "kube-system"},
        "spec": {
            "root": {
                "name": "root",
                "min": gpus,
                "max": gpus,
                "children": [{"name": "team-a", "min": gpus, "max": gpus, "namespaces": ["team"]}],
            }
        },
    }
    assert nodes_of(ask(nodes=[node("n1", 2)], queues=tree, jobs=jobs)) == {"x": ["n1"]}


# --- nodes and devices --------------------------------------------------------------------------------------------


def test_halves_share_one_device_and_whole_gpus_get_others() -> None:
    pods = [{"gpus": 1}, *({"gpu_fraction": 0.5} for _ in range(4))]
    found = devices_of(ask(nodes=[node("n1", 4)], jobs=[{"name": "x", "pods": pods}]))
    assert [devices for _, devices in found.values()] == [[2], [0], [0], [1], [1]]


def test_shares_never_come_to_more_than_a_device_however_many_come_at_once() -> None:
    shares = [0.3, 0.6, 0.2, 0.7, 0.5, 0.5, 0.4, 0.9, 0.1, 0.8]
    jobs = [{"name": f"s{index}", "pods": [{"gpu_fraction": share}]} for index, share in enumerate(shares)]
    found = devices_of(ask(nodes=[node("n1", 3), node("n2", 2)], jobs=jobs))
    left: dict[tuple[str, int], int] = {}
    for name, (where, devices) in found.items():
        at = (where, devices[0])
        left[at] = left.get(at, 1000) - int(shares[int(name[1:].partition("-")[0])] * 1000)
    assert len(found) >= 8
    assert min(left.values()) >= 0


def test_a_whole_gpu_never_goes_to_a_device_that_is_shared() -> None:
    jobs = [
        {"name": "share", "pods": [{"gpu_fraction": 0.1, "phase": "Running", "node": "n1", "devices": [1]}]},
        job("whole", 2),
        job("one", 1),
    ]
    found = ask(nodes=[node("n1", 2)], jobs=jobs)
    assert devices_of(found) == {"share-0": ("n1", [1]), "one-0": ("n1", [0])}


def test_a_share_of_several_devices_takes_different_ones() -> None:
    pods = [{"gpu_fraction": 0.5, "devices": 2} for _ in range(3)]
    found = devices_of(ask(nodes=[node("n1", 3)], jobs=[{"name": "x", "pods": pods}]))
    assert all(len(set(devices)) == 2 for _, devices in found.values())
    counts = [device for _, devices in found.values() for device in devices]
    assert sorted(counts) == [0, 0, 1, 1, 2, 2]
    one = ask(nodes=[node("n1", 1)], jobs=[{"name": "x", "pods": pods[:1]}])
    assert not one.admitted


def test_memory_counts_against_what_a_device_has() -> None:
    nodes = [node("small", 1, gpu_memory_mib=8000), node("large", 1, gpu_memory_mib=24000), node("unknown", 1)]
    pods = [{"gpu_memory_mib": 9000}, {"gpu_memory_mib": 9000}]
    found = devices_of(ask(nodes=nodes, jobs=[{"name": "x", "pods": pods}]))
    assert found == {"x-0": ("large", [0]), "x-1": ("large", [0])}
    third = ask(nodes=nodes, jobs=[{"name": "x", "pods": [*pods, pods[0]]}])
    assert not third.admitted


def test_running_shares_are_counted_on_the_devices_they_have() -> None:
    running = {"gpu_fraction": 0.6, "phase": "Running", "node": "n1"}
    jobs = [
        {"name": "x", "pods": [{**running, "devices": [1]}]},
        {"name": "y", "pods": [running]},
        {"name": "z", "pods": [{"gpu_fraction": 0.4}, {"gpu_fraction": 0.4}]},
    ]
    found = devices_of(ask(nodes=[node("n1", 2)], jobs=jobs))
    assert found == {"x-0": ("n1", [1]), "y-0": ("n1", [0]), "z-0": ("n1", [0]), "z-1": ("n1", [1])}


def test_taints_and_labels_keep_pods_away() -> None:
    nodes = [
        node("a100", 1, labels={"gpu": "a100"}),
        node("kept", 2, taints=[{"key": "team", "value": "x"}]),
        node("gone", 2, ready=False),
    ]
    jobs = [
        {"name": "picky", "pods": [{"gpus": 1, "node_selector": {"gpu": "a100"}}]},
        {"name": "plain", "pods": [{"gpus": 1}]},
        {"name": "meant", "pods": [{"gpus": 2, "tolerations": [{"key": "team", "operator": "Exists"}]}]},
    ]
    found = ask(nodes=nodes, jobs=jobs)
    assert nodes_of(found) == {"picky": ["a100"], "meant": ["kept"]}
    assert waiting(found).keys() == {"plain"}


def test_packing_and_spreading() -> None:
    nodes = [node("n1", 4), node("n2", 4)]
    jobs = [job("x", 1, 1)]
    assert len(set(nodes_of(ask(nodes=nodes, jobs=jobs))["x"])) == 1
    assert len(set(nodes_of(ask(nodes=nodes, jobs=jobs, placement="spread"))["x"])) == 2


def test_nobody_is_moved_without_a_place_to_go_to() -> None:
    jobs = [ran("r1", 1, "n1"), ran("r2", 1, "n2"), job("wide", 2)]
    found = ask(nodes=[node("n1", 2), node("n2", 1)], jobs=jobs)
    assert (evicted(found), found.admitted) == ([], [])


def test_time_and_order_of_the_file_make_one_answer() -> None:
    state = yaml.safe_load(given(PAGE)["state.yaml"])
    assert ask(**state) == ask(**state)


# --- the page and the command ----------------------------------------------------------------------------------------


def test_the_example_of_the_page_is_answered_as_the_page_says(tmp_path, capsys) -> None:
    path = tmp_path / "state.yaml"
    path.write_text(given(PAGE)["state.yaml"])
    assert run(["decide", "--state", str(path), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["job"], each["claimant"], each["rule"]) for each in found["evicted"]] == [
        ("tune", "train", "reclaim")
    ]
    train = {pod["name"]: (pod["node"], pod["devices"]) for pod in found["admitted"][0]["pods"]}
    assert train["worker-0"] == train["worker-1"]
    assert train["head"][1] != train["worker-0"][1]
    assert [each["job"] for each in found["running"]] == ["sweep"]
    assert {each["job"]: each["code"] for each in found["waiting"]}["huge"] == "ExceedsMaxQuota"
    assert run(["decide", "--state", str(path)]) == 0
    told = capsys.readouterr().out
    assert "Admitted\n  train  research/vision  head" in told
    assert "for train  reclaim: its queue uses quota that another queue is owed" in told


def test_a_state_may_come_from_stdin_and_may_be_empty(monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.stdin", StringIO('{"nodes": []}'))
    assert run(["decide", "--state", "-"]) == 0
    assert capsys.readouterr().out == "Nothing is there, and nothing is decided.\n"


ONE = {"nodes": [node("n1", 2)]}


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("[", "is neither YAML nor JSON"),
        ("[]", "must be an object with nodes, queues and jobs"),
        ('{"jobs": []}', "the document: nodes is missing"),
        ('{"nodes": [], "nodes": []}', "line 1: 'nodes' is there twice"),
        ({"nodes": [{"name": "n", "gpu": 1}]}, "nodes[0] 'n': 'gpu' is unknown; known are name, gpus, cpu"),
        ({"nodes": [node("n", "two")]}, "nodes[0] 'n'.gpus is 'two'; write a whole number"),
        ({"nodes": [{"name": 1}]}, "nodes[0].name is 1; write a text; put it into quotes"),
        ({"nodes": [node("n", 1, labels={"zone": 1})]}, "nodes[0] 'n'.labels[zone] is 1; write a text"),
        (
            {"nodes": [node("n", 1, taints=[{"key": "a", "effect": "No"}])]},
            "nodes[0] 'n'.taints[0].effect is 'No'; write one of NoSchedule, NoExecute, PreferNoSchedule",
        ),
        ({**ONE, "placement": "best"}, "placement is 'best'; write one of pack, spread"),
        ({**ONE, "jobs": [{"name": "j", "pods": 3}]}, "jobs[0] 'j'.pods is 3; write a list"),
        ({**ONE, "jobs": [{"name": "j", "pods": [{"phase": "Failed"}]}]}, "phase is 'Failed'; write one of Pend"),
        ({**ONE, "jobs": [job("j", 1, priority=1.5)]}, "jobs[0] 'j'.priority is 1.5; write a whole number or a text"),
        ({**ONE, "jobs": [{"name": "j", "pods": [{"gpu_fraction": 0.5, "devices": [0]}]}]}, "devices is [0], and it"),
        (
            {**ONE, "jobs": [job("j", 1, subgroups=[{"name": "s", "min_member": 1}])]},
            "pod 'j-0': subgroup is ''; write one of s",
        ),
        ({**ONE, "queues": [{"name": "a", "quotas": 1}]}, "queues[0]: 'quotas' is unknown; known are name"),
        (
            {
                **ONE,
                "queues": [
                    {
                        "apiVersion": "scheduling.run.ai/v2",
                        "kind": "Queue",
                        "metadata": {"name": "a"},
                        "spec": {"resources": {"gpu": {"qouta": 1}}},
                    }
                ],
            },
            "queues[0] 'a': spec.resources.gpu.qouta is no field of a Queue; is it misspelt?",
        ),
        ({"nodes": [node("n", -1)]}, "nodes[0] 'n': gpus is -1; write a whole number from 0 on"),
        ({"nodes": [node("n", 1), node("n", 1)]}, "node 'n' is there twice"),
        ("nodes: !!set {a}", "nodes[0] is 'a'; write an object"),
        (f"nodes: {'[' * 3000}{']' * 3000}", "is nested too deeply; write nodes, queues and jobs as lists of objects"),
        ({"nodes": [{"name": "n", "": 1}]}, "nodes[0] 'n': '' is unknown; known are name, gpus"),
        ({"nodes": [node("n", 10**400)]}, "write a whole number from 0 to 10000"),
        ({"nodes": [node("a\nb", 1)]}, r"nodes[0]: its name 'a\nb' has characters that cannot be printed"),
        ({**ONE, "jobs": [job("a\nb", 1)]}, r"jobs[0]: its name 'a\nb' has characters that cannot be printed"),
        ({**ONE, "jobs": [{"name": "j", "pods": [{"name": "\0"}]}]}, r"jobs[0] 'j': its name '\x00' has characters"),
        ({**ONE, "queues": [{"name": "a\nb"}]}, r"queues: 'a\nb' is not the name of a queue"),
        (
            {
                "nodes": [node("n", 0)],
                "jobs": [
                    {"name": "j", "pods": [{"gpu_fraction": 0.5, "phase": "Running", "node": "n", "devices": [0]}]}
                ],
            },
            "devices [0], and 'n' has none",
        ),
        (
            {**ONE, "queues": {"kind": "ElasticQuotaTree", "metadata": 3}},
            "queues: ElasticQuotaTree: metadata is 3; write an object",
        ),
        (
            "nodes: []\nqueues: [{kind: Queue, apiVersion: scheduling.run.ai/v2, metadata: {name: a, 2026-01-01: b}}]",
            "queues[0] 'a': has a key that is no text; put it into quotes",
        ),
        ({**ONE, "jobs": [job("j", 1, queue="x")]}, "jobs[0] 'j': queue 'x' does not exist; there are default"),
        ({**ONE, "jobs": [{"name": "j", "pods": []}]}, "jobs[0] 'j': pods is empty"),
        ({**ONE, "jobs": [job("j", 1, min_member=2)]}, "min_member is 2, and it has 1 pods"),
        ({**ONE, "jobs": [job("j", 1, priority="urgent")]}, "priority 'urgent' is neither a number nor one of train"),
        ({**ONE, "jobs": [ran("j", 1, "n7")]}, "pod 'j-0': runs on node 'n7', which is not in nodes"),
        ({**ONE, "jobs": [ran("j", 3, "n1")]}, "pod 'j-0': has 3 GPUs, and node 'n1' has 2 free for it"),
        ({**ONE, "jobs": [{"name": "j", "pods": [{"gpus": 1, "gpu_fraction": 0.5}]}]}, "gpus and gpu_fraction"),
        ({**ONE, "jobs": [{"name": "j", "pods": [{"gpu_fraction": 1}]}]}, "above 0 and below 1"),
        ({**ONE, "jobs": [{"name": "j", "pods": [{"gpu_fraction": "x"}]}]}, "gpu_fraction: 'x' is not a number"),
        ({**ONE, "jobs": [{"name": "j", "pods": [{"devices": 2}]}]}, "has devices and no share of them"),
        ({**ONE, "jobs": [{"name": "j", "pods": [{"phase": "Running"}]}]}, "is Running and has no node"),
        ({**ONE, "jobs": [{"name": "j", "pods": [{"node": "n1"}]}]}, "is Pending and has node"),
        ({**ONE, "jobs": [{"name": "j", "pods": [{"subgroup": "s"}]}]}, "subgroup 's' is not in subgroups"),
        ({**ONE, "now_s": 1, "jobs": [job("j", 1, created_s=2)]}, "now_s: 1 is before something in the file"),
        ({**ONE, "queues": [{"name": "a", "weight": -1}]}, "weight: gpus is -1; write a number from 0 on"),
        ({**ONE, "queues": [{"name": "a"}, {"name": "a"}]}, "queues: 'a' is there twice"),
        (
            {**ONE, "queues": [{"name": "a"}, {"name": "b", "parent": "a"}], "jobs": [job("j", 1, queue="a")]},
            "queue 'a' has queues below it; jobs wait in b",
        ),
        ({**ONE, "queues": [{"name": "a", "quota": -2}]}, "gpus is -2; write a number from 0 on, or -1 for unlimited"),
        ({**ONE, "queues": [{"name": "a", "quota": {"gpu": 1}}]}, "'gpu' is unknown; known are gpus, cpu_milli"),
        (
            {**ONE, "queues": [{"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {}}]},
            "queues[0]: metadata.name is missing",
        ),
    ],
)
def test_what_is_wrong_is_named(state: object, told: str) -> None:
    with pytest.raises(StateFileError) as found:
        read_state(state if isinstance(state, str) else json.dumps(state), "s.yaml")
    assert str(found.value).startswith("s.yaml: ")
    assert told in str(found.value)
    assert str(found.value).isprintable(), "one line, whatever the file has"
    assert len(str(found.value)) < 600, "no longer than somebody reads"


# --- topology -------------------------------------------------------------------------------------------------------

RACKS = [node(f"{rack}-{index}", 2, labels={"rack": rack}) for rack in ("r1", "r2") for index in range(3)]


def test_a_gang_is_within_one_domain_of_the_level_it_requires() -> None:
    jobs = [ran("there", 1, "r1-0"), job("gang", 2, 2, 2, topology={"required": "rack"})]
    found = ask(nodes=RACKS, jobs=jobs)
    assert nodes_of(found) == {"gang": ["r2-0", "r2-1", "r2-2"]}


def test_a_gang_that_no_domain_takes_is_told_how_far_the_best_one_goes() -> None:
    found = ask(nodes=RACKS, jobs=[job("gang", 2, 2, 2, 2, topology={"required": "rack"})])
    assert not found.admitted
    assert "rack r2 has 3 of 4" in found.waiting[0].text


def test_a_preferred_level_is_tried_first_and_is_no_condition() -> None:
    jobs = [ran("there", 1, "r1-0"), job("gang", 2, 2, topology={"preferred": "rack"})]
    assert {name[:2] for name in nodes_of(ask(nodes=RACKS, jobs=jobs))["gang"]} == {"r1"}
    large = job("gang", 2, 2, 2, 2, topology={"preferred": "rack"})
    assert len(nodes_of(ask(nodes=RACKS, jobs=[large]))["gang"]) == 4


def test_each_worker_group_may_have_a_level_of_its_own() -> None:
    groups = [{"name": name, "min_member": 3, "topology": {"required": "rack"}} for name in ("x", "y")]
    pods = [{"gpus": 2, "subgroup": name} for name in ("x", "y") for _ in range(3)]
    found = ask(nodes=RACKS, jobs=[{"name": "ray", "pods": pods, "subgroups": groups}])
    where = [pod.node[:2] for pod in found.admitted[0].pods]
    assert where in (["r1"] * 3 + ["r2"] * 3, ["r2"] * 3 + ["r1"] * 3)
