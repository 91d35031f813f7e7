"""kill -9 of the server under load: what was acknowledged is there, and nothing is there twice."""

import asyncio
from collections import Counter

from kit.nats import SMALL, commit
from kit.waiting import until
from muster.bus.cell import open_log
from muster.bus.connection import connect
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.bus.server import EmbeddedServer

WRITERS = ("queue_sorter", "quota_accountant", "gang_admitter", "preemptor", "autoscaler_bridge", "actuator")
KILLS = 3


class Writer:
    """Appends as fast as it can and remembers what was acknowledged where."""

    def __init__(self, log: JetStreamLog, stage: str) -> None:
        self.acknowledged: dict[int, str] = {}
        self.stop = False
        self.task = asyncio.create_task(self._write(log, stage))

    async def _write(self, log: JetStreamLog, stage: str) -> None:
        seq, number = 0, 0
        while not self.stop:
            one = commit(number, stage=stage)
            seq = await log.append(one, expected=seq)
            assert seq not in self.acknowledged
            self.acknowledged[seq] = one.commit_id
            number += 1


async def test_no_acknowledged_commit_is_lost_and_none_is_doubled_by_kills_under_load() -> None:
    async with EmbeddedServer() as server:
        connection = await connect(server.url, name="load", reconnect_wait_s=0.02)
        log = await open_log(JetStream(connection, timeout_s=1.0), "main", create=True, limits=SMALL)
        seen: dict[int, str] = {}

        async def follow() -> None:
            async for batch in log.follow(0):
                for stored in batch:
                    assert stored.seq == len(seen) + 1
                    seen[stored.seq] = stored.commit.commit_id

        following = asyncio.create_task(follow())
        writers = [Writer(log, stage) for stage in WRITERS]

        def acknowledged() -> int:
            for task in (following, *(writer.task for writer in writers)):
                if task.done():
                    task.result()
            return sum(len(writer.acknowledged) for writer in writers)

        for round_ in range(1, KILLS + 1):
            enough = acknowledged() + 200
            await until(lambda enough=enough: acknowledged() >= enough)  # type: ignore[misc]
            await server.kill()
            assert not any(writer.task.done() for writer in writers)
            await server.restart()
            await until(lambda round_=round_: connection.epoch == round_ + 1)  # type: ignore[misc]
        enough = acknowledged() + 200
        await until(lambda: acknowledged() >= enough)
        for writer in writers:
            writer.stop = True
        await asyncio.gather(*(writer.task for writer in writers))
        end = await log.end()
        await until(lambda: following.done() or len(seen) == end)
        following.cancel()

        told = {seq: commit_id for writer in writers for seq, commit_id in writer.acknowledged.items()}
        assert {seq: seen.get(seq) for seq in told} == told
        assert max(Counter(seen.values()).values()) == 1
        # Nothing but the genesis is stored that its writer was not told of in the end.
        assert len(seen) == len(told) + 1
        await connection.close()
