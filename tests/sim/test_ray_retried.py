"""RayJobs that KubeRay runs again, and a hold in the middle; a head that restarts while overuse is counted."""

from __future__ import annotations

import json

import pytest

from kit.elastic import CORE, HEAD_CPU, ElasticPlay, raycluster
from kit.story import rayjob
from muster.events.decisions import SuspensionOrdered
from muster.events.elastic import SurplusOrdered
from muster.fakecluster.kuberay import OUTCOME
from muster.model import api


def used(play: ElasticPlay) -> int:
    """cpu that the leaf is charged with, in thousandths."""
    return int(play.cell.seats["quota_accountant"].state.ledger.used.get("root/ns", {}).get("cpu", 0))


def state(play: ElasticPlay, name: str) -> str:
    return str(play.call("GET", api.RAYJOBS, "ns", name)["status"]["jobDeploymentStatus"])


def patched(play: ElasticPlay, *ops: dict[str, object]) -> None:
    path = api.RAYJOBS.path("ns", "again")
    answer = play.cluster.server.handle("PATCH", path, body=json.dumps(ops).encode(),
                                        content_type="application/json-patch+json")  # fmt: skip
    assert answer.ok, answer.body


@pytest.mark.parametrize("after_s", [3, 6, 8, 10, 12, 15, 20])
def test_a_hold_in_the_middle_of_a_retry_frees_all_and_the_job_is_run_again(after_s: int) -> None:
    play = ElasticPlay(("ns", "4", "4"))
    notes = {OUTCOME: "failed"}
    play.create_raw(rayjob("again", "ns", cpu="1", runtime="3s", annotations=notes, backoffLimit=2))
    play.cell.advance(after_s * 1_000)
    patched(play, {"op": "add", "path": "/metadata/annotations/muster.dev~1hold", "value": "true"},
            {"op": "add", "path": "/spec/suspend", "value": True})  # fmt: skip
    play.cell.advance(30_000)
    assert (state(play, "again"), used(play), play.pods("again")) == ("Suspended", 0, [])
    play.create_raw(rayjob("next", "ns", cpu="1", runtime="5s"))
    play.cell.advance(60_000)
    assert state(play, "next") == "Complete"
    patched(play, {"op": "remove", "path": "/metadata/annotations/muster.dev~1hold"})
    play.cell.advance(120_000)
    assert (state(play, "again"), used(play)) == ("Failed", 0)
    play.clean()


def test_a_head_that_restarts_while_overuse_is_counted_changes_nothing_of_it() -> None:
    """Two workers beyond the grant; the head ends three times before their minute is over."""
    play = ElasticPlay(("ns", f"{3 * CORE + HEAD_CPU}m", f"{3 * CORE + HEAD_CPU}m"))
    stored = play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
    stored["metadata"]["annotations"]["muster.dev/overuse-timeout"] = "1m"
    play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", stored)
    body = raycluster(replicas=3)
    body["spec"] |= {"enableInTreeAutoscaling": False, "gcsFaultToleranceOptions": {"redisAddress": "redis:6379"}}
    play.create(body).stopped = True
    play.edit([{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 5}])
    play.cell.advance(3_000)
    assert len(play.pods()) == 5
    for _ in range(3):
        play.cell.advance(15_000)
        [head] = play.pods(node_type="head")
        play.call("DELETE", api.PODS, "ns", head["metadata"]["name"])
    assert not play.told(SurplusOrdered) and len(play.pods()) == 5
    play.cell.advance(30_000)
    [order] = play.told(SurplusOrdered)
    assert len(play.pods()) == 3 and order.surplus["cpu"] <= 2 * CORE
    play.cell.advance(300_000)
    assert len(play.pods()) == 3 and not play.told(SuspensionOrdered)
    play.clean()
