"""What a month writes: 50,000 jobs a day, each a gang of 100 pods, from a sample of jobs that run through all stages.

Run: python tests/perf/bench_store.py [--jobs N] [--members N]. One process, virtual time, a simulated cluster: jobs
come at the rate of 50,000 a day; what they write is counted and multiplied. A month of it is compared with what both
install forms have: the store of NATS and the volume of the archive.
"""

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from figures import Progress, Table

from kit import facts
from kit.disorder import DisorderedCell
from kit.podgangs import SIGS
from kit.story import quota_tree, rayjob
from muster.core.stage import Folder
from muster.events.envelope import Stored, encode_commit
from muster.events.registry import encode
from muster.events.system import PlacementChosen
from muster.fakecluster.world import SimCluster
from muster.model import api
from muster.runtime.config import Config
from muster.told.readmodel.model import ReadModel
from muster.told.views.publication import facets_in, public_event

A_DAY, MEMBERS, DAYS = 50_000, 100, 30
EVERY_MS = 86_400_000 // A_DAY
STEP_MS = 250
"""How often what has changed is reported: as in a live cell, several changes share a commit."""
MESSAGE = 180
"""Bytes beside the body of a stored message: its record, subject, and trace."""
ENVELOPE = 230
"""Bytes of a commit beside its events."""
PUBLIC = 620
"""The same of a public event, with its headers."""
GIB = 1 << 30
STORE_GIB = 64e9 / GIB
ARCHIVE_GIB = 64.0
"""What deploy/install.yaml and deploy/install-small.yaml have."""

ABOUT = (
    f"{A_DAY:,} jobs a day for {DAYS} days, each a gang of {{members}} pods: {{jobs}} of them run at that rate, in "
    "virtual time on a simulated cluster that has room for half of them at once; bytes are counted and multiplied. At "
    "most: were each event a commit of its own. The store is what both install forms reserve in NATS at worst: a full "
    "generation, the room for the next one, the sealed ones that stay, public events and quarantine."
)

Submit = Callable[[SimCluster, int, int], None]


def ray_job(cluster: SimCluster, number: int, members: int) -> None:
    """A RayJob: a head and its workers, placed by kube-scheduler."""
    _create(cluster, api.RAYJOBS, rayjob(f"job-{number}", runtime="10s", cpu="1", memory="1G", replicas=members - 1))


def pod_gang(cluster: SimCluster, number: int, members: int) -> None:
    """Pods that are placed together by Muster, and end after a while."""
    for index in range(members):
        labels = {f"{SIGS}/name": f"gang-{number}", f"{SIGS}/min-available": str(members)}
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
        meta = {"name": f"gang-{number}-{index}", "namespace": "video", "labels": labels}
        _create(cluster, api.PODS, {"metadata": meta, "spec": {"schedulerName": "muster", "containers": [container]}})


def _create(cluster: SimCluster, resource: api.ApiResource, body: dict[str, Any]) -> None:
    namespace = body["metadata"]["namespace"]
    answer = cluster.server.handle("POST", resource.path(namespace), body=json.dumps(body).encode())
    assert answer.ok, answer.body


def _end(cluster: SimCluster, number: int) -> None:
    """Delete the pods of a gang."""
    found = json.loads(cluster.server.handle("GET", api.PODS.path("video")).body)["items"]
    for pod in found:
        if pod["metadata"]["labels"].get(f"{SIGS}/name") == f"gang-{number}":
            path = api.PODS.path("video", pod["metadata"]["name"])
            cluster.server.handle("DELETE", path, query={"gracePeriodSeconds": "0"})


def written(submit: Submit, jobs: int, members: int) -> list[Stored]:
    """The log of a sample."""
    nodes = {f"node-{index}": {"cpu": str(members), "memory": "1Ti", "pods": "200"} for index in range(jobs // 2)}
    cluster = SimCluster(nodes)
    cell = DisorderedCell(cluster, isolate=False, placement=PlacementChosen(mode="pack"))
    size = {"cpu": members * (jobs // 2), "memory": "1000T"}
    tree = facts.node("root", size, size, children=(facts.node("video", size, size, ("video",)),))
    _create(cluster, api.QUOTA_TREES, quota_tree(tree))
    cell.advance(1_000)
    begins = len(cell.log)
    for number in range(jobs):
        submit(cluster, number, members)
        for _ in range(EVERY_MS // STEP_MS):
            cell.advance(STEP_MS)
        if submit is pod_gang and number >= 6:
            _end(cluster, number - 6)
    for number in range(max(0, jobs - 6), jobs):
        if submit is pod_gang:
            _end(cluster, number)
    for _ in range(120_000 // STEP_MS):
        cell.advance(STEP_MS)
    return cell.log[begins:]


def public_bytes(log: list[Stored]) -> int:
    """What is published of it."""
    folder, state = Folder(ReadModel()), ReadModel().initial()
    state.seq = log[0].seq - 1
    found = 0
    for stored in log:
        known = facets_in(state, stored)
        folder.fold(state, stored)
        for index, event in enumerate(stored.commit.events):
            made = public_event("main", 1, stored.seq, index, state.now, event, known)
            if made is not None:
                found += len(encode(made)) + PUBLIC
    return found


def round_of(submit: Submit, jobs: int, members: int) -> dict[str, float]:
    log = written(submit, jobs, members)
    config = Config()
    bodies = [encode_commit(each.commit) for each in log]
    size = sum(len(body) + MESSAGE for body in bodies)
    events = sum(len(each.commit.events) for each in log)
    most = size + (events - len(log)) * (MESSAGE + ENVELOPE)
    of_stages: Counter[str] = Counter()
    for body, each in zip(bodies, log, strict=True):
        of_stages[each.commit.stage] += len(body) + MESSAGE
    _, largest = of_stages.most_common(1)[0]
    lines = b"".join(b'{"seq":%d,"commit":%b}\n' % (seq, body) for seq, body in enumerate(bodies))
    packed = len(gzip.compress(lines, 6)) / len(lines)
    part = config.log_max_bytes * config.log_stage_percent / 100
    a_day = A_DAY / jobs
    generation = config.log_max_bytes * config.log_roll_percent / 100
    sealed = config.log_keep * generation
    others = config.log_max_bytes + GIB / 4
    store = (2 * config.log_max_bytes + sealed + others) / GIB
    return {
        "events of a job": events / jobs,
        "commits of a job": len(log) / jobs,
        "bytes of a job in the log": size / jobs,
        "bytes of a job in the log, at most": most / jobs,
        "GiB a day in the log": size * a_day / GIB,
        "GiB a day in the log, at most": most * a_day / GIB,
        "days until a generation of 8 GiB is rolled over": generation / (size * a_day),
        f"GiB in the store of NATS, at worst, of {STORE_GIB:.0f}": store,
        "GiB a month in the archive, compressed": size * a_day * DAYS * packed / GIB,
        "days until the 64 GiB of the archive are full": ARCHIVE_GIB * GIB / (size * a_day * packed),
        "GiB of public events in 14 days, of 8": public_bytes(log) * a_day * 14 / GIB,
        "the largest stage in ten minutes, % of its part": largest * a_day / 144 / part * 100,
    }


def measure(jobs: int, members: int, say: Progress) -> list[Table]:
    found = []
    for submit, name in ((ray_job, "RayJobs"), (pod_gang, "gangs of pods")):
        say(f"store: {jobs} {name} of {members}")
        title = f"A month of {A_DAY:,} {name} a day"
        found.append(Table(title, ABOUT.format(jobs=jobs, members=members), [round_of(submit, jobs, members)]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--members", type=int, default=MEMBERS)
    wanted = parser.parse_args()
    for table in measure(wanted.jobs, wanted.members, Progress()):
        print(table.title, table.about, *table.lines(), sep="\n")


if __name__ == "__main__":
    main()
