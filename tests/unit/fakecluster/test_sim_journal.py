"""A simulated cluster that outlives its process: everything written is there again, and nothing is given out twice."""

import json
from pathlib import Path

import pytest

from kit.documents import manifest
from muster.fakecluster.apiserver.journal import Journal, JournalError
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.world import SimCluster, VirtualClock
from muster.model.api import CRDS, NODES, PODS, RAYCLUSTERS, RAYJOBS

NODE = {"n1": {"cpu": "16", "memory": "64Gi"}}


def boot(path: Path, clock: VirtualClock | None = None) -> tuple[SimCluster, Journal]:
    journal = Journal(path)
    cluster = SimCluster(NODE, clock=clock, saved=journal.saved)
    journal.follow(cluster.server)
    return cluster, journal


def everything(cluster: SimCluster) -> dict[str, Obj]:
    tables = cluster.server.store.tables()
    return {found["metadata"]["uid"]: found for table in tables for found in table.objects.values()}


def submit(cluster: SimCluster) -> str:
    job = manifest("rayjob-video")
    job["spec"]["suspend"] = False
    name: str = cluster.server.objects.create(RAYJOBS, "video", job)["metadata"]["name"]
    return name


def test_a_cluster_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "cluster.jsonl"
    first, journal = boot(path)
    submit(first)
    first.advance(5_000)
    before, version = everything(first), first.server.store.version
    journal.close()  # Nothing is written at the end: a process that is killed leaves the same file.
    again, journal = boot(path)
    assert everything(again) == before
    assert again.server.store.version == version
    assert len(again.server.store.table(NODES).objects) == 1
    journal.close()


def test_it_goes_on_and_cleans_up_what_it_began(tmp_path: Path) -> None:
    path, clock = tmp_path / "cluster.jsonl", VirtualClock()
    first, journal = boot(path, clock)
    name = submit(first)
    assert first.advance_until(lambda: bool(first.server.store.table(PODS).objects), 60_000)
    journal.close()
    again, journal = boot(path, clock)

    def over() -> bool:
        job = again.server.objects.get(RAYJOBS, "video", name)
        clusters = again.server.store.table(RAYCLUSTERS).objects
        return job["status"].get("jobDeploymentStatus") == "Complete" and not clusters

    assert again.advance_until(over, 300_000)
    journal.close()


def test_names_and_uids_are_never_given_out_again(tmp_path: Path) -> None:
    path = tmp_path / "cluster.jsonl"
    seen: set[str] = set()
    for _ in range(3):
        cluster, journal = boot(path)
        job = cluster.server.objects.create(RAYJOBS, "video", manifest("rayjob-video"))
        uid, name = job["metadata"]["uid"], job["metadata"]["name"]
        cluster.server.objects.delete(RAYJOBS, "video", name)
        assert not seen & {uid, name}
        seen |= {uid, name}
        journal.close()


def test_a_line_that_a_crash_cut_off_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "cluster.jsonl"
    cluster, journal = boot(path)
    before = everything(cluster)
    journal.close()
    with path.open("ab") as file:
        file.write(b'{"type":"ADDED","object":{"kin')
    again, journal = boot(path)
    assert everything(again) == before
    journal.close()


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cluster.jsonl"
    _, journal = boot(path)
    journal.close()
    lines = path.read_bytes().splitlines()
    lines[1] = b"{"
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(JournalError, match="line 2"):
        Journal(path)
    path.write_text("something else\n")
    with pytest.raises(JournalError, match="line 1"):
        Journal(path)


def test_definitions_made_by_users_are_served_again(tmp_path: Path) -> None:
    path = tmp_path / "cluster.jsonl"
    cluster, journal = boot(path)
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": True, "storage": True}],
        },
    }
    assert cluster.server.handle("POST", CRDS.path(), body=json.dumps(definition).encode()).ok
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    path_of = "/apis/example.com/v1/namespaces/default/widgets"
    assert cluster.server.handle("POST", path_of, body=json.dumps(widget).encode()).ok
    journal.close()
    again, journal = boot(path)
    assert again.server.handle("GET", f"{path_of}/w").ok
    journal.close()


def test_a_rewritten_journal_holds_what_exists_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "cluster.jsonl"
    cluster, journal = boot(path)
    for _ in range(50):
        submit(cluster)
    for key in list(cluster.server.store.table(RAYJOBS).objects):
        cluster.server.objects.delete(RAYJOBS, *key.split("/"))
    journal.close()
    long = len(path.read_bytes().splitlines())
    _, journal = boot(path)
    journal.close()
    assert len(path.read_bytes().splitlines()) < long / 5
