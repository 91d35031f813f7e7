"""A lever acts on the cluster of the log it was named, and on no other, whatever else runs on the machine."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from kit.cli import Cli, Running
from kit.simulated import served
from kit.story import quota_tree, rayjob
from muster.fakecluster.world import SimCluster, VirtualClock
from muster.model import api
from muster.runtime.clock import SystemClock


def newest_home(cli: Cli, known: list[Path]) -> Path:
    found = [path for path in cli.tmp.iterdir() if path.name.startswith("muster-up-") and path not in known]
    assert len(found) == 1, found
    return found[0]


async def url_of(up: Running) -> str:
    line = await up.line("nats://")
    return next(word for word in line.split() if word.startswith("nats://"))


async def marks(cli: Cli, home: Path) -> dict[str, dict[str, str]]:
    """The annotations of every RayJob in the simulated cluster of an instance."""
    server = yaml.safe_load((home / "kubeconfig").read_text())["clusters"][0]["cluster"]["server"]
    async with aiohttp.ClientSession() as session, session.get(server + api.RAYJOBS.path()) as answer:
        items: list[dict[str, Any]] = (await answer.json())["items"]
    return {item["metadata"]["name"]: item["metadata"].get("annotations") or {} for item in items}


async def test_a_lever_with_url_acts_on_the_cluster_of_that_log_though_a_newer_instance_runs(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    async with cli.start("up", "--headless") as first:
        url = await url_of(first)
        waiting = (await first.line(lambda line: "  waits  " in line)).split()[2]
        home_a = newest_home(cli, [])
        async with cli.start("up", "--headless") as second:
            await second.line(lambda line: "  waits  " in line and waiting in line)
            home_b = newest_home(cli, [home_a])
            held = (await cli.run("hold", waiting, "--reason", "no data", "--url", url)).ok()
            assert "it is not queued: on hold by" in held.lines[1]
            name = waiting.partition("/")[2]
            assert (await marks(cli, home_a))[name]["muster.dev/hold"] == "true"
            assert "muster.dev/hold" not in (await marks(cli, home_b))[name]
            paused = (await cli.run("pause", "admissions", "--reason", "x", "--url", url)).ok()
            assert "does not show it" not in paused.out
            (await cli.run("resume", "admissions", "--url", url)).ok()
            (await cli.run("priority", waiting, "7", "--reason", "x", "--url", url)).ok()
            (await cli.run("release", waiting, "--url", url)).ok()
            assert (await marks(cli, home_a))[name]["muster.dev/priority"] == "7"
            assert "muster.dev/priority" not in (await marks(cli, home_b))[name]
            other = ("--url", url, "--kubeconfig", str(home_b / "kubeconfig"))
            wrong = await cli.run("hold", waiting, "--reason", "x", *other)
            assert wrong.code == 1
            assert url in wrong.err
            assert "--context" in wrong.err
            assert "--url" in wrong.err
            assert "muster.dev/hold" not in (await marks(cli, home_b))[name]
            looked = await cli.run("doctor", *other)
            assert looked.code == 1
            assert "another cluster" in looked.out
            assert (await second.stop()).code == 0
        assert (await first.stop()).code == 0


async def test_a_log_without_a_local_instance_goes_with_the_kubeconfig_of_the_shell(tmp_path: Path) -> None:
    cluster = SimCluster({"node-1": {"cpu": "48", "memory": "192Gi"}}, clock=VirtualClock(SystemClock().now()))
    there, here = Cli(tmp_path / "there"), Cli(tmp_path / "here")
    async with served(cluster, tmp_path, "theirs") as kubeconfig:
        for resource, body in ((api.QUOTA_TREES, quota_tree()), (api.RAYJOBS, rayjob("one", runtime="3600s"))):
            path = resource.path(body["metadata"].get("namespace", ""))
            assert cluster.server.handle("POST", path, body=json.dumps(body).encode()).ok
        observing = ("up", "--headless", "--context", "theirs", "--kubeconfig", str(kubeconfig))
        async with there.start(*observing) as up, here.start("up", "--headless") as mine:
            url = await url_of(up)
            await up.line(lambda line: "  queued  " in line)
            await mine.line(lambda line: "  queued  " in line)
            held = (await here.run("hold", "video/one", "--reason", "x", "--url", url, KUBECONFIG=str(kubeconfig))).ok()
            assert "RayJob video/one is on hold, by " in held.lines[0]
            found = cluster.server.objects.get(api.RAYJOBS, "video", "one")["metadata"]["annotations"]
            assert found["muster.dev/hold"] == "true"
            none = await here.run("hold", "video/one", "--reason", "x", "--url", url, HOME=str(tmp_path))
            assert none.code == 3, none.err
            assert "--context" in none.err
            assert (await up.stop()).code == 0
            assert (await mine.stop()).code == 0
