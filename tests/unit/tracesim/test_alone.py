"""How a queue would do alone, on a cluster of its min: also one below other queues."""

from kit.traces import trace
from muster.tracesim.runner import delays_alone

NESTED = {
    "nodes": [{"count": 1, "gpus": 8}],
    "queues": {
        "flat": {"min": 4},
        "upper": {"min": 4, "children": {"middle": {"min": 4, "children": {"leaf": {"min": 2}}}}},
    },
}


def test_a_queue_below_others_is_alone_with_its_own_min(tmp_path):
    made = trace(tmp_path, NESTED, "a,leaf,2,0,10\nb,leaf,2,0,10\nc,flat,4,0,10")
    leaf = next(path for path in made.cluster.leaves if path.endswith("leaf"))
    assert delays_alone(made) == {leaf: 5.0, "root/flat": 0.0}
