"""The small form by docs/howto/install.md: one NATS, one pod. Then docs/howto/upgrade.md, and the way back.

While versions change one job runs and another one waits.

The next version is this one with one more rule set (kit.nextversion), as image muster:0.2.0.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kit import facts, proof
from kit.cluster import document_job
from kit.controlplane import ControlPlane
from kit.controlplane.build import Binaries
from kit.installation import ACCOUNTS, NEEDED, UPGRADE, Installation, figure, with_kuberay
from kit.witness import Witness
from muster.core.objects.meta import INTENT, QUEUED_AT
from muster.events.system import LeaderStarted

pytestmark = [NEEDED, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed(
    control_plane_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    folder = tmp_path_factory.mktemp("small")
    async with (
        ControlPlane(users=ACCOUNTS, prepare=with_kuberay, kwok=False) as plane,
        Installation(plane, folder) as found,
    ):
        await found.install(small=True)
        yield found


async def test_one_nats_and_one_pod_admit_the_first_job(
    installed: Installation, request: pytest.FixtureRequest
) -> None:
    figure(
        request, "install.md, small form, from the first command to the first admission", f"{installed.took_s:.0f} s"
    )
    assert [pod.name for pod in installed.kubelet.of("nats-")] == ["nats-0"]
    deployments = await installed.cluster.kube.list_objects("apps/v1", "Deployment", "muster-system")
    assert [each["metadata"]["name"] for each in deployments] == ["muster"]
    (sample,) = await installed.admitted()
    await installed.cluster.until(lambda: installed.cluster.running(sample), 60.0, "the sample to run")
    await installed.end(sample)


async def test_a_new_version_and_the_way_back(installed: Installation, tmp_path: Path) -> None:
    cluster = installed.cluster
    witness = Witness(cluster.transport, facts.t0())
    await cluster.follow(witness.follow)
    names = [await cluster.submit(document_job(runtime="1h", ttl_s=0))]
    await cluster.until(lambda: cluster.running(names[0]), 60.0, "the first job to run")
    versions = 0
    for heading, following, image in (
        ("## Upgrade", "## Go back", "muster:0.2.0"),
        ("## Go back", "## Put new rules in force", "muster:0.1.0"),
    ):
        names.append(await cluster.submit(document_job(runtime="1h", ttl_s=0)))
        running, waiting = names[-2:]

        async def waits(waiting: str = waiting) -> bool:
            return "Insufficient quota" in await cluster.message(waiting)

        await cluster.until(waits, 60.0, "the second job to wait")
        before = {name: await cluster.annotations(name) for name in (running, waiting)}
        since = (await installed.commits())[-1].seq
        await installed.page(UPGRADE, heading, until_heading=following)
        [pod] = [pod for pod in installed.kubelet.of("muster-") if pod.labels["app.kubernetes.io/name"] == "muster"]
        assert {each["image"] for each in pod.spec["containers"]} == {image}
        assert await cluster.running(running)
        after = {name: await cluster.annotations(name) for name in (running, waiting)}
        assert (after[running][INTENT], after[waiting][QUEUED_AT]) == (
            before[running][INTENT],
            before[waiting][QUEUED_AT],
        )
        await installed.end(running)
        await cluster.until(lambda waiting=waiting: cluster.running(waiting), 60.0, "the one that waited to run")
        commits = await installed.commits(since)
        led = {e.process for each in commits for e in each.commit.events if isinstance(e, LeaderStarted)}
        assert led, "the processes that replaced the others lead"
        assert all(process.startswith(pod.name) for process in led), led
        assert {each.commit.ruleset for each in commits} == {1}
        versions += 1
    assert versions == 2
    await installed.end(names[-1])
    await witness.clean(*(f"video/{name}" for name in [*witness_sample(witness, names), *names]))
    assert await installed.refused() == []
    assert (await proof.prove(await installed.commits(), tmp_path, silences=False))["decisions"]


def witness_sample(witness: Witness, names: list[str]) -> list[str]:
    """The job of the page, where its RayCluster was still there."""
    return [job.partition("/")[2] for job in witness.started if job.partition("/")[2] not in names]
