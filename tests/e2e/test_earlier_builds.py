"""Earlier builds as they were, on the data of one demo: an upgrade, a refusal, and the way back (`make compat`).

The simulated cluster stands still (`--speed 0.01`) while builds change, so what runs, waits and is charged must stand
too. Between two builds nothing else is done than docs/howto/upgrade.md says.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from kit.cli import Cli
from kit.older import BUILDS, Build, Standing
from muster.bus.server import EmbeddedServer
from muster.events.wire import WIRE

pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(900)]

STILL = ("--story", "teams", "--headless", "--no-jobs", "--speed", "0.01", "--duration")


class Demo:
    """The data of a ``muster up``, and one build after the other on it."""

    def __init__(self, folder: Path) -> None:
        self.cli = Cli(folder)
        self.data = folder / "demo"

    async def muster(self, build: Build | None, *words: str) -> str:
        """The output of a command of a build, this one for None."""
        env = build.env() if build is not None else {}
        return (await self.cli.run(*words, "--data", str(self.data), **env)).ok().out

    async def lives(self, build: Build | None, seconds: str) -> None:
        """A build runs for a while; the demo may have submitted one more job just before the build before it ended."""
        env = build.env() if build is not None else {}
        ended = await self.cli.run("up", *STILL, seconds, "--data", str(self.data), **env)
        assert "Ended after" in ended.out, f"{ended.out}\n{ended.err}"

    async def standing(self, build: Build | None, at: str = "") -> Standing:
        when = ("--at", at) if at else ()
        jobs, tree = [json.loads(await self.muster(build, *words, *when, "-o", "json")) for words in ASKED]
        return Standing.of(jobs, tree)

    async def born(self) -> list[dict[str, Any]]:
        """The genesis of each generation that this build reads."""
        file = self.data.parent / "log.jsonl"
        await self.muster(None, "export", "--out", str(file))
        events = [event for line in file.read_text().splitlines() for event in json.loads(line)["commit"]["events"]]
        return [event for event in events if event["type"] == "genesis"]

    async def go_back(self, wire: int) -> None:
        async with EmbeddedServer(data=self.data / "nats") as server:
            (await self.cli.run("log", "roll", "--wire", str(wire), "--url", server.url)).ok()


def keeps(before: Standing, after: Standing) -> None:
    """What ran runs, what waited waits in its order, and leaves with the same running jobs are charged alike.

    A Ray cluster scales by itself: the leaf of one is not compared.
    """
    assert {*before.running} <= {*after.running}
    for queue, waiting in before.order.items():
        assert [name for name in after.order[queue] if name in waiting] == waiting
    new = {*after.running} - {*before.running}
    moved = {name.partition(" ")[2].partition("/")[0] for name in after.running if "RayCluster" in name or name in new}
    leaves = {path for path in before.charges if not any(other.startswith(f"{path}/") for other in before.charges)}
    compared = [path for path in leaves if path.rpartition("/")[2] not in moved]
    assert any(before.charges[path].get("cpu", "0") != "0" for path in compared)
    assert {path: after.charges[path] for path in compared} == {path: before.charges[path] for path in compared}


ASKED = (("ls",), ("queue", "tree"))


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.commit)
async def test_to_this_build_and_back(build: Build, tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    await demo.muster(build, "up", "--headless", "--duration", "14", "--speed", "3", "--seed", "7", "--story", "teams")
    before = await demo.standing(build)
    assert before.running
    assert before.order
    await demo.lives(None, "5")
    first, second = await demo.born()
    assert (first.get("wire", 0), second["wire"]) == (build.wire, WIRE)
    assert second["reason"].startswith(f"generation 1 has wire {build.wire}")
    rolled = await demo.standing(None, str(before.end + 1))
    assert (rolled.running, rolled.order, rolled.charges) == (before.running, before.order, before.charges)
    after = await demo.standing(None)
    keeps(before, after)
    if not build.wire:
        return  # It reads whatever it can, and knows no number.
    refused = await demo.cli.run("up", *STILL, "5", "--data", str(demo.data), **build.env())
    assert refused.code != 0
    assert f"has wire {WIRE}" in refused.err + refused.out
    assert "run build" in refused.err + refused.out
    assert (await demo.standing(None)).end == after.end, "nothing was written"
    await demo.go_back(build.wire)
    await demo.lives(build, "8")
    back = await demo.standing(build)
    keeps(before, back)
    # And forward again, from states of its own.
    await demo.lives(None, "5")
    again = await demo.standing(None)
    keeps(before, again)
