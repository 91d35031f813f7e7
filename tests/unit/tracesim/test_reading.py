"""CLUSTER.json and JOBS.csv as users write them, and what they are told when something is wrong."""

import json

import pytest

from kit.traces import SAMPLES, files, trace
from muster.model.keys import Ref
from muster.tracesim.clusterfile import read_cluster
from muster.tracesim.faults import Fault, read_faults
from muster.tracesim.jobsfile import read_trace
from muster.tracesim.model import CPU, GPU, MEMORY, TraceError

TWO = {"nodes": [{"count": 2, "gpus": 8}], "queues": {"a": {"min": 4}, "b": {"min": 12, "max": 16}}}


def test_a_trace_is_read_with_exact_amounts(tmp_path):
    found = trace(tmp_path, TWO, "1,a,2,0,10.5\n2,b,0.5,1.25,7")
    assert found.cluster.capacity == {GPU: 16_000}
    assert [(job.id, job.queue, job.gpus, job.submit, job.duration) for job in found.jobs] == [
        ("1", "root/a", 2000, 0, 10_500),
        ("2", "root/b", 500, 1250, 7000),
    ]


def test_jobs_come_in_the_order_of_their_arrival_and_ties_in_that_of_the_file(tmp_path):
    found = trace(tmp_path, TWO, "z,a,1,5,1\ny,a,1,0,1\nx,a,1,5,1")
    assert [job.id for job in found.jobs] == ["y", "z", "x"]


def test_vc_is_a_queue_and_other_columns_are_tolerated(tmp_path):
    found = trace(tmp_path, TWO, "1,b,u7,1,0,5,-", header="job_id,vc,user,gpus,submit_s,duration_s,note")
    assert found.jobs[0].queue == "root/b"


def test_every_optional_column_counts(tmp_path):
    header = "job_id,queue,gpus,submit_s,duration_s,priority,cpu_milli,memory_mib,gpu_milli,min_member,preemptible"
    found = trace(tmp_path, TWO, "1,a,1,0,5,-3,1500,2,250,1,false\n2,a,4,0,5,,,,,4,", header=header)
    one, two = found.jobs
    assert one.request == {CPU: 1500, MEMORY: 2 * 2**20, GPU: 250}
    assert (one.priority, one.preemptible, two.priority, two.preemptible, two.members) == (-3, False, 0, True, 4)


def test_placement_is_a_field_of_the_cluster(tmp_path):
    assert trace(tmp_path, TWO, "1,a,1,0,5").cluster.placement == "off"
    assert trace(tmp_path, TWO | {"placement": "pack"}, "1,a,1,0,5").cluster.placement == "pack"
    with pytest.raises(TraceError, match=r"'tight' is no placement; there are off .*, pack .* and spread"):
        trace(tmp_path, TWO | {"placement": "tight"}, "1,a,1,0,5")


def test_without_queues_every_queue_of_the_jobs_gets_an_equal_part(tmp_path):
    found = trace(tmp_path, {"nodes": [{"count": 1, "gpus": 8}]}, "1,a,1,0,5\n2,b,1,0,5\n3,c,1,0,5")
    assert {queue.name: queue.min[GPU] for queue in found.cluster.leaves.values()} == {"a": 2000, "b": 2000, "c": 2000}


def test_a_tree_of_queues_with_amounts_per_resource(tmp_path):
    cluster = {
        "nodes": [{"count": 4, "gpus": 8, "cpu_milli": 64000, "memory_mib": 1024}],
        "queues": {
            "team": {
                "min": {"gpus": 8, "cpu": "16"},
                "max": {"nvidia.com/gpu": 16},
                "weight": 3,
                "priority": 2,
                "children": {"x": {"min": {"gpus": 4}}, "y": {}},
            }
        },
    }
    found = trace(tmp_path, cluster, "1,x,1,0,5\n2,team/y,1,0,5\n3,root/team/y,1,0,5")
    team = found.cluster.queues["root/team"]
    assert team.min == {CPU: 16_000, GPU: 8000}
    assert (team.max, team.weight, team.priority) == ({GPU: 16_000}, 3, 2)
    assert [job.queue for job in found.jobs] == ["root/team/x", "root/team/y", "root/team/y"]
    assert found.cluster.capacity == {CPU: 256_000, MEMORY: 4 * 1024 * 2**20, GPU: 32_000}


def test_what_one_node_does_not_name_is_ample_in_the_whole_cluster(tmp_path):
    cluster = {"nodes": [{"count": 1, "gpus": 8, "cpu_milli": 1000}, {"count": 1, "gpus": 4}]}
    assert trace(tmp_path, cluster, "1,a,1,0,5").cluster.capacity == {GPU: 12_000}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("1,a,x,0,5", "line 3, column 3 (gpus): 'x' is not a number"),
        ("1,a,-1,0,5", "line 3, column 3 (gpus): '-1' is not a finite number of 0 or more"),
        ("1,a,1,,5", "line 3, column 4 (submit_s): is empty"),
        ("1,a,1,0,nan", "line 3, column 5 (duration_s): 'nan' is not a finite number of 0 or more"),
        ("1,c,1,0,5", "line 3, column 2 (queue): there is no queue c in the cluster; there are a, b"),
        ("0,a,1,0,5", "line 3, column 1 (job_id): '0' is the id of the job in line 2 already"),
        (",a,1,0,5", "line 3, column 1 (job_id): is empty"),
        ("1,a,1", "line 3, column 4 (submit_s): is empty"),
    ],
)
def test_a_wrong_cell_is_named_by_line_and_column(tmp_path, line, told):
    with pytest.raises(TraceError) as caught:
        trace(tmp_path, TWO, f"0,a,1,0,5\n{line}")
    assert str(caught.value) == f"{tmp_path / 'jobs.csv'} {told}"


def test_a_missing_column_is_named(tmp_path):
    with pytest.raises(
        TraceError, match="line 1: column duration_s is missing; the header is job_id,queue,gpus,submit"
    ):
        trace(tmp_path, TWO, "1,a,1,0", header="job_id,queue,gpus,submit_s")


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        ('{"nodes": [{"gpus": 8,}]}', "line 1, column 23: is not JSON: "),
        (
            '{"nodes": [\n  {"count": "two", "gpus": 8}]}',
            "line 2, column 13 (nodes[0].count): must be a number, and is",
        ),
        ('{"nodes": [{"count": 2, "gpu": 8}]}', "line 1, column 25 (nodes[0].gpu): 'gpu' is unknown here; known are"),
        ('{"nodes": [{"count": 2}]}', "line 1, column 12 (nodes[0]): names no gpus"),
        ('{"queues": {}}', "line 1, column 1: has no nodes; write"),
        (
            '{"nodes": [{"gpus": 8}],\n "queues": {"a": {"min": 6},\n            "b": {"min": 3}}}',
            "line 2, column 12 (queues): the queues' min nvidia.com/gpu sum up to 9, and the cluster has 8",
        ),
        (
            '{"nodes": [{"gpus": 8}], "queues": {"a": {"min": 6, "max": 5}}}',
            "line 1, column 50 (queues.a.min): min nvidia.com/gpu 6 is over max 5",
        ),
        (
            '{"nodes": [{"gpus": 8}], "queues": {"a": {"children": {"x": {}}}, "b": {"children": {"x": {}}}}}',
            "line 1, column 36 (queues): two leaf queues are called x: root/a/x and root/b/x; rename one",
        ),
        (
            '{"nodes": [{"gpus": 8}], "queues": {"a": {"min": {"cpu": "4 cores"}}}}',
            "line 1, column 58 (queues.a.min.cpu): '4 cores' is not a quantity such as 500m, 4 or 14Gi",
        ),
    ],
)
def test_a_wrong_value_is_named_by_line_and_column(tmp_path, cluster, told):
    path = tmp_path / "cluster.json"
    path.write_text(cluster)
    with pytest.raises(TraceError) as caught:
        read_cluster(path, ("a",))
    assert str(caught.value).startswith(f"{path} {told}")


def test_jobs_wait_in_leaves_only(tmp_path):
    cluster = {"nodes": [{"gpus": 8}], "queues": {"a": {"children": {"x": {}}}}}
    with pytest.raises(TraceError, match=r"\(queue\): queue a has children, and jobs wait in leaves only"):
        trace(tmp_path, cluster, "1,a,1,0,5")


def test_openb_lists_are_read_as_they_are():
    found = read_trace(SAMPLES / "openb_nodes_sample.csv", SAMPLES / "openb_pods_sample.csv")
    assert found.cluster.nodes == 39
    first = found.by_id["openb-pod-0000"]
    assert first.request == {CPU: 12_000, MEMORY: 16_384 * 2**20, GPU: 1000}
    assert (first.submit, first.duration) == (0, 12_537_496_000)
    assert found.by_id["openb-pod-0001"].gpus == 460


def test_pods_without_times_come_one_after_the_other_and_stay(tmp_path):
    pods = tmp_path / "pods.csv"
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1000,1,1,500\nb,1000,1,2,1000\n")
    found = read_trace(SAMPLES / "openb_nodes_sample.csv", pods)
    assert [(job.id, job.submit, job.duration, job.gpus) for job in found.jobs] == [
        ("a", 0, None, 500),
        ("b", 1000, None, 2000),
    ]


def test_faults_are_read(tmp_path):
    path = tmp_path / "faults.json"
    rows = [{"kind": "node_loss", "at_s": 10, "for_s": 2.5, "nodes": 2}, {"kind": "api_outage", "at_s": 1, "for_s": 1}]
    path.write_text(json.dumps({"faults": rows}))
    found = read_faults(path, ("n0", "n1", "n2"))
    assert found.rows == (Fault("node_loss", 10_000, 12_500, ("n1", "n2")), Fault("api_outage", 1000, 2000))
    assert found.lost(12_499) == {"n1", "n2"}
    assert found.lost(12_500) == set()
    assert [found.answered(at) for at in (999, 1000, 1999, 2000)] == [999, 2000, 2000, 2000]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"kind": "fire", "at_s": 1}, "(faults[0].kind): 'fire' is no kind of fault"),
        ({"kind": "api_outage", "at_s": 1}, "(faults[0]): an api_outage needs for_s"),
        ({"kind": "node_loss", "at_s": 1, "nodes": ["n7"]}, "(faults[0].nodes[0]): there is no node n7"),
        ({"kind": "node_loss", "at_s": -1}, "(faults[0].at_s): must be seconds from 0 on"),
    ],
)
def test_a_wrong_fault_is_named(tmp_path, row, told):
    path = tmp_path / "faults.json"
    path.write_text(json.dumps({"faults": [row]}))
    with pytest.raises(TraceError) as caught:
        read_faults(path, ("n0", "n1"))
    assert told in str(caught.value)


def test_queue_names_that_cannot_be_namespaces_get_one(tmp_path):
    from muster.tracesim.facts import Facts

    cluster, jobs = files(
        tmp_path, {"nodes": [{"gpus": 8}], "queues": {"Team A": {}, "team_b": {}}}, "1,Team A,1,0,5\n2,team_b,1,0,5"
    )
    found = Facts(read_trace(cluster, jobs).cluster)
    assert found.namespaces == {"root/Team A": "queue-0", "root/team_b": "queue-1"}
    assert found.submitted(read_trace(cluster, jobs).jobs[1]).ref == Ref("RayJob", "queue-1", "2", "2")
