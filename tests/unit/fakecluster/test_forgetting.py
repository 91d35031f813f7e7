"""A cluster forgets Events after an hour and ended jobs by their time to live, and does not grow with its age."""

from __future__ import annotations

import json
from collections import Counter

from muster.fakecluster.forgetting import EVENTS_MS, RAYJOBS_MS, Forgetting
from muster.fakecluster.world import SimCluster
from muster.model import api
from muster_cli.local import living
from muster_cli.local.cluster import HISTORY, RESOURCES

HOUR_MS = 3_600_000


def cluster() -> SimCluster:
    return SimCluster(living.NODES, others=(Forgetting(),), history=HISTORY)


def created(world: SimCluster, resource: api.ApiResource, body: dict[str, object], namespace: str = "a") -> None:
    answer = world.server.handle("POST", resource.path(namespace), body=json.dumps(body).encode())
    assert answer.ok, answer.body


def counts(world: SimCluster) -> dict[str, tuple[int, int]]:
    """{plural: (objects, changes kept)}"""
    return {
        table.kind.resource.plural: (len(table.objects), len(table.changes)) for table in world.server.store.tables()
    }


def test_an_event_goes_an_hour_after_its_last_write() -> None:
    world = cluster()
    event = {"apiVersion": "v1", "kind": "Event", "involvedObject": {"kind": "Pod", "name": "p"}, "count": 1}
    for name in ("once", "again"):
        created(world, api.EVENTS, {**event, "metadata": {"name": name, "namespace": "a"}})
    world.advance(EVENTS_MS // 2)
    patch = json.dumps({"count": 2}).encode()
    path = f"{api.EVENTS.path('a')}/again"
    assert world.server.handle("PATCH", path, body=patch, content_type="application/merge-patch+json").ok
    names = []
    for _ in range(2):
        world.advance(EVENTS_MS // 2 + 1)
        names.append([*world.server.store.table(api.EVENTS).objects])
    assert names == [["a/again"], []]


def test_a_job_goes_by_its_time_to_live_and_one_without_stays() -> None:
    world = cluster()
    container = {"name": "main", "image": "i"}
    template = {
        "metadata": {"annotations": {"sim.muster.dev/run-for": "10s"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    for name, more in (("kept", {}), ("short", {"ttlSecondsAfterFinished": 60})):
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "a"}}
        created(world, api.JOBS, {**body, "spec": {"template": template, **more}})
    world.advance(HOUR_MS)
    assert [*world.server.store.table(api.JOBS).objects] == ["a/kept"]
    assert len(world.server.store.table(api.PODS).objects) == 1


def test_a_cluster_of_two_hours_has_as_many_objects_as_one_of_half_an_hour() -> None:
    """The jobs of the demo without a queue, an eighth of them: each starts at once, and goes a while after its end."""
    world, at = cluster(), list[dict[str, tuple[int, int]]]()
    began = world.clock.now()
    for turn in living.endless(0):
        world.advance(int(turn.wait_s * 8_000))
        if world.clock.now() - began >= (len(at) + 1) * HOUR_MS // 2:
            at.append(counts(world))
        if len(at) == 4:
            break
        body = {**turn.body, "spec": {**turn.body["spec"], "suspend": False}}
        created(world, RESOURCES[body["apiVersion"], body["kind"]], body, body["metadata"]["namespace"])
    assert {plural for plural, (_, kept) in at[3].items() if kept > HISTORY} == set()
    early, late = (Counter({plural: number for plural, (number, _) in each.items()}) for each in (at[0], at[3]))
    assert 0 < late["rayjobs"] <= RAYJOBS_MS // 16_000 + 10, "one comes every 16 s or more, and some run"
    assert late.total() <= 1.5 * early.total()
