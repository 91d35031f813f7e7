"""Ray's own code as a judge: a program for the interpreter of Ray, which answers a list of questions at once.

It shares nothing with Muster: it reads JSON from its standard input and calls Ray.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from kit.realray.venv import installed

OFFERS = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from ray.autoscaler._private.kuberay.autoscaling_config import _get_ray_resources_from_group_spec as offers
def answer(group):
    try:
        return offers(group, False)
    except Exception as err:
        return repr(err)
print(json.dumps([answer(group) for group in json.load(sys.stdin)]))
"""

LAUNCHES = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
from ray.autoscaler.v2.schema import AutoscalerInstance
from ray.autoscaler.v2.instance_manager.config import NodeTypeConfig
from ray.autoscaler.v2.utils import ResourceRequestUtil as Util
from ray.core.generated import autoscaler_pb2 as pb
from ray.core.generated.instance_manager_pb2 import Instance, NodeKind
kinds = Util.PlacementConstraintType
def request(each, constraints=None, none=None):
    selectors = [[(key, 2 if excluded else 1, values) for key, values, excluded in one] for one in each["selectors"]]
    return Util.make(each["resources"], constraints, selectors or none)
def counted(shapes, none=None):
    return [pb.ResourceRequestByCount(request=request(each, none=none), count=each["count"]) for each in shapes]
def gang(found):
    kind = {"STRICT_PACK": kinds.AFFINITY, "STRICT_SPREAD": kinds.ANTI_AFFINITY}.get(found["strategy"])
    constraints = [(kind, "_PG_" + found["name"], "")] if kind else None
    requests = [request(each, constraints) for each in found["bundles"] for _ in range(each["count"])]
    return pb.GangResourceRequest(requests=requests, bundle_selectors=[pb.BundleSelector(resource_requests=requests)])
def instance(node, groups):
    group = groups[node["group"]]
    state = pb.NodeState(
        node_id=node["pod"].encode(), ray_node_type_name=node["group"], instance_id=node["pod"],
        total_resources=group["offers"], available_resources=node["free"], labels=group["labels"], status=pb.RUNNING,
    )
    im = Instance(
        instance_id=node["pod"], instance_type=node["group"], status=Instance.RAY_RUNNING, node_id=node["pod"],
        node_kind=NodeKind.WORKER,
    )
    return AutoscalerInstance(ray_node=state, im_instance=im, cloud_instance_id=node["pod"])
def answer(case):
    groups = {each["name"]: each for each in case["groups"]}
    configs = {
        name: NodeTypeConfig(
            name=name, min_worker_nodes=0, max_worker_nodes=each["most"], resources=each["offers"],
            labels=each["labels"], priority=each["priority"],
        )
        for name, each in groups.items()
    }
    explicit = counted(case["explicit"])
    reply = ResourceDemandScheduler().schedule(SchedulingRequest(
        disable_launch_config_check=True, node_type_configs=configs,
        resource_requests=counted(case["pending"], [[]]), gang_resource_requests=[gang(each) for each in case["gangs"]],
        cluster_resource_constraints=[pb.ClusterResourceConstraint(resource_requests=explicit)] if explicit else [],
        current_instances=[instance(each, groups) for each in case["nodes"]],
    ))
    return {each.instance_type: each.count for each in reply.to_launch}
print(json.dumps([answer(case) for case in json.load(sys.stdin)]))
"""


def asked(program: str, questions: list[Any], *, within_s: float = 300.0) -> list[Any]:
    """What Ray answers to each of the questions."""
    command = [str(installed() / "python3"), "-c", program]
    done = subprocess.run(
        command, input=json.dumps(questions), capture_output=True, text=True, timeout=within_s, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers: list[Any] = json.loads(done.stdout.splitlines()[-1])
    assert len(answers) == len(questions)
    return answers
