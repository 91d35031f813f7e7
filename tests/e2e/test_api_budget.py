"""How many requests Muster makes for a job, by class: on a real API server, over 40 jobs that come, wait, run and end.

Counted by the transport's own hook. The decision path is what lets jobs run; presentation is what users look at; lists
and watches are made once, whatever the number of jobs, and are counted apart.
"""

from collections import Counter

import pytest

from kit import facts
from kit.cluster import Cluster
from kit.muster import Muster
from kit.story import quota_tree, rayjob
from kit.witness import Witness
from muster.events.decisions import QuotaDenied, QuotaReleased
from muster.events.facts import TreeNodeSpec

JOBS = 40
AT_ONCE = 10
TEAMS = ("video", "text", "devops")


def tree() -> TreeNodeSpec:
    """Three queues, ten small jobs at once."""
    leaves = tuple(facts.node(team, {"cpu": 4}, {"cpu": 8}, (team,)) for team in TEAMS)
    return facts.node("root", {"cpu": 2 * AT_ONCE}, {"cpu": 2 * AT_ONCE}, children=leaves)


async def life_of_many(cluster: Cluster, muster: Muster) -> Witness:
    witness = Witness(cluster.transport, tree())
    cluster.keep(witness.follow.run())
    await cluster.kube.create(quota_tree(tree()))
    names = []
    for index in range(JOBS):
        team = TEAMS[index % 3]
        job = rayjob(f"job-{index}", team, cpu="1", memory="1G", replicas=1, runtime="2s", ttl_s=1)
        await cluster.submit(job)
        names.append(f"{team}/job-{index}")

    async def all_released() -> bool:
        return len(await muster.happened(QuotaReleased)) == JOBS

    await cluster.until(all_released, 90.0, "every job to be over")
    witness.clean(*names)
    return witness


def classes(muster: Muster) -> dict[str, Counter[str]]:
    """{class: {verb resource: requests}}; what the presenter wrote is known from itself."""
    presented = Counter[str]()
    if muster.process.config.profile == "kube-queue":
        for name, count in muster.presenter.writes.items():
            presented[name] += count
    found: dict[str, Counter[str]] = {"decision": Counter(), "presentation": presented, "reading": Counter()}
    for name, count in muster.requests.items():
        verb, _, resource = name.partition(" ")
        if verb in ("list", "watch", "get"):
            found["reading"][name] += count
        elif resource.startswith("rayjobs"):
            found["decision"][name] += count - presented["PATCH rayjobs"]
    total = sum(
        count for name, count in muster.requests.items() if name.partition(" ")[0] in ("create", "patch", "delete")
    )
    assert total == sum(found["decision"].values()) + sum(presented.values()), "every write is in one class"
    return found


@pytest.mark.slow
async def test_requests_in_profile_kube_queue(cluster: Cluster, muster_up: Muster) -> None:
    await life_of_many(cluster, muster_up)
    found = classes(muster_up)
    print({name: dict(counts) for name, counts in found.items()})
    commits = await muster_up.commits()
    waited = {event.ref.name for stored in commits for event in stored.commit.events if isinstance(event, QuotaDenied)}
    assert waited
    assert sum(found["decision"].values()) == JOBS
    assert sum(found["presentation"].values()) <= 6 * JOBS
    assert 0
