"""Two Musters with a log each on one cluster: the Lease of the cluster lets one act, and the other one watch."""

import contextlib
from pathlib import Path

from kit.cluster import Cluster, document_job
from kit.muster import Muster, running
from muster.bus.server import EmbeddedServer
from muster.core.objects.meta import INTENT
from muster.events.effects import EffectApplied
from muster.runtime.clusterlease import NAME, NAMESPACE
from muster_cli.owners import owner_findings


async def test_a_second_muster_watches_until_the_first_one_leaves(
    cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    await cluster.apply_tree()
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()

    async def holder() -> str:
        lease = await cluster.kube.get("coordination.k8s.io/v1", "Lease", NAME, NAMESPACE)
        return str(lease["spec"]["holderIdentity"])

    async def acts(muster: Muster, other: Muster | None = None) -> None:
        name = await cluster.submit(document_job(runtime="500ms", ttl_s=0))
        await cluster.complete(name)
        assert await muster.happened(EffectApplied, name)
        assert other is None or not await other.happened(EffectApplied, name)
        assert INTENT in (await cluster.job(name))["metadata"]["annotations"]

    def waits(muster: Muster) -> bool:
        return any("another Muster acts on this cluster" in why for why in muster.process.not_ready())

    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(running(cluster, nats_server.url, folders[0], prove=False))
        async with running(cluster, nats_server.url, folders[1], prove=False, ready=False) as second:
            await cluster.until(lambda: waits(second), what="the second one to say why it does not act")
            assert (await holder()).startswith(f"{first.cell}/")
            await acts(first, second)
            [said] = [each for each in await owner_findings(cluster.transport, acting=True) if "Lease" in each.detail]
            assert (said.title, said.grade) == ("acting Muster", "bad")
            assert await holder() in said.detail
            await stack.aclose()
            await cluster.until(second.ready, what="the second one to act")
            assert (await holder()).startswith(f"{second.cell}/")
            await acts(second)
