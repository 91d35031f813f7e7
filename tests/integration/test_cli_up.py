"""``muster up`` as a user runs it: its story, its end, and what it leaves behind."""

import asyncio
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from kit.cli import Cli, Running, gone

QUICK = ("--headless", "--speed", "20")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def turn(word: str, job: str = "") -> Callable[[str], bool]:
    """Whether a line tells that: its second column is the word, the third the job."""

    def matches(line: str) -> bool:
        parts = line.split()
        return len(parts) > 2 and parts[1] == word and job in ("", parts[2])

    return matches


def job_of(line: str) -> str:
    """The job a line of output is about."""
    return next(word for word in line.split() if word.startswith("video/"))


async def both_running(up: Running) -> tuple[str, str]:
    """Wait until the second sample job runs too; returns both."""
    first = job_of(await up.line(turn("admitted")))
    second = job_of(await up.line(turn("waits")))
    await up.line(turn("running", second))
    return first, second


async def test_two_jobs_one_after_the_other_and_then_nothing_is_left(cli: Cli) -> None:
    began = time.monotonic()
    async with cli.start("up", *QUICK) as up:
        await up.line(turn("admitted"))
        assert time.monotonic() - began < 15
        first, second = await both_running(up)
        assert first != second
        servers = up.children()
        assert [process.name() for process in servers] == ["nats-server"]
        ended = await up.stop(signal.SIGINT)
    assert ended.code == 0
    said = ended.lines
    assert said[0].startswith("Dashboard ")
    assert said[1].startswith("Muster ")
    waits = next(filter(turn("waits"), said))
    assert "Insufficient quota(cpu) in quota root/algorithm/video: request 12, max 14, used 12" in waits
    tried = next(filter(turn("tried"), said))
    assert second in tried
    assert f"because {first} released cpu 12, memory 12G" in tried
    order = [line.split()[1] for line in said if len(line.split()) > 2 and line.split()[2] == first]
    assert order == ["queued", "admitted", "running", "finished", "released"]
    assert said[-1].startswith("Ended after ")
    assert "2 jobs queued, 2 admitted" in said[-1]
    assert "\x1b" not in ended.out
    gone(servers)
    assert cli.left == []


async def test_it_ends_by_itself_and_says_how_it_went(cli: Cli) -> None:
    ended = (await cli.run("up", *QUICK, "--duration", "12")).ok()
    assert "2 jobs queued" in ended.lines[-1]
    assert "the first after " in ended.lines[-1]
    assert cli.left == []


async def test_it_fails_with_a_reason_when_nothing_was_admitted(cli: Cli) -> None:
    ended = await cli.run("up", "--headless", "--duration", "0.01")
    assert ended.code == 1
    assert "no job was admitted in" in ended.err


async def test_without_jobs_nothing_is_expected(cli: Cli) -> None:
    ended = (await cli.run("up", *QUICK, "--no-jobs", "--duration", "1.5")).ok()
    assert "0 jobs queued" in ended.lines[-1]


async def test_quiet_says_nothing(cli: Cli) -> None:
    ended = (await cli.run("up", *QUICK, "--quiet", "--duration", "10")).ok()
    assert ended.out == ""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
async def test_other_ways_to_stop_it(cli: Cli, how: signal.Signals) -> None:
    async with cli.start("up", *QUICK) as up:
        await up.line(turn("admitted"))
        servers = up.children()
        assert (await up.stop(how)).code == 0
    gone(servers)
    assert cli.left == []


async def test_killed_it_takes_its_broker_along_and_the_next_command_sweeps_up(cli: Cli) -> None:
    async with cli.start("up", *QUICK) as up:
        await up.line(turn("admitted"))
        servers = up.children()
        await up.stop(signal.SIGKILL)
    gone(servers)
    assert len(cli.left) == 2  # The directory of run files, and its home.
    assert (await cli.run("queue", "ls")).code == 3
    assert cli.left == []


async def test_a_second_run_goes_on_where_a_killed_one_stopped(cli: Cli, tmp_path: Path) -> None:
    data = tmp_path / "demo"
    async with cli.start("up", "--headless", "--data", str(data)) as up:
        first = job_of(await up.line(turn("admitted")))
        second = job_of(await up.line(turn("waits")))
        servers = up.children()
        await up.stop(signal.SIGKILL)
    gone(servers)
    async with cli.start("up", *QUICK, "--data", str(data)) as up:
        await up.line("goes on after ")
        await up.line(turn("released", first))
        await up.line(turn("admitted", second))
        # Exporting from its directory reads from the one that runs on it.
        (await cli.run("export", "--data", str(data), "--out", str(tmp_path / "a.jsonl"))).ok()
        assert (await up.stop()).code == 0
    (await cli.run("export", "--data", str(data), "--out", str(tmp_path / "b.jsonl.gz"))).ok()
    replayed = (await cli.run("replay", "--log", str(tmp_path / "b.jsonl.gz"), "--verify")).ok()
    assert replayed.lines[-1].endswith("commits, 0 divergent")
    checked = (await cli.run("check", "--log", str(tmp_path / "b.jsonl.gz"))).ok()
    assert checked.lines[-1].endswith("0 broken")
    assert cli.left == []


async def test_two_on_one_directory_are_one_too_many(cli: Cli, tmp_path: Path) -> None:
    data = str(tmp_path / "demo")
    async with cli.start("up", *QUICK, "--data", data) as up:
        await up.line(turn("admitted"))
        second = await cli.run("up", "--data", data)
        assert second.code == 1
        assert "in use by another process" in second.err


async def test_a_taken_port_is_said_and_a_usual_one_given_up(cli: Cli) -> None:
    async with cli.start("up", *QUICK) as up:
        bus = await up.line("nats-server ")
        port = bus.split("127.0.0.1:")[1].split()[0]
        await up.line(turn("admitted"))
        refused = await cli.run("up", "--port", port)
        assert refused.code == 1
        assert f"port {port} on 127.0.0.1 is taken" in refused.err
        async with cli.start("up", *QUICK) as other:
            await other.line(turn("admitted"))
            newest = (await cli.run("log", "info", "-o", "json")).ok()
            assert newest.json()["url"] in (await other.line("nats-server "))
            assert "2 Musters run here" in newest.err
            chosen = await cli.run("log", "info", "-o", "json", "--url", f"nats://127.0.0.1:{port}")
            assert chosen.ok().json()["url"].endswith(port)


async def test_down_ends_it_from_another_terminal(cli: Cli, tmp_path: Path) -> None:
    assert "No `muster up` of yours is running" in (await cli.run("down")).ok().out
    async with cli.start("up", *QUICK, "--data", str(tmp_path / "demo")) as up:
        await up.line(turn("admitted"))
        ended = (await cli.run("down")).ok()
        assert f"Ended process {up.pid} " in ended.out
        assert f"kept in {tmp_path / 'demo'}" in ended.out
        assert (await up.wait()).code == 0
    assert cli.left == []


async def test_a_reader_that_has_enough_is_no_error(cli: Cli) -> None:
    async with cli.start("up", *QUICK) as up:
        await up.line(turn("admitted"))
        command = f"{sys.executable} -m muster_cli tail --since 1 | head -2; exit ${{PIPESTATUS[0]}}"
        shell = await asyncio.create_subprocess_exec(
            "bash", "-c", command, env=cli.environ(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await shell.communicate()
        assert (shell.returncode, len(out.splitlines()), err) == (0, 2, b"")


async def test_it_outlives_its_broker(cli: Cli) -> None:
    async with cli.start("up", *QUICK) as up:
        await up.line(turn("waits"))
        server = next(process for process in up.children() if process.name() == "nats-server")
        server.send_signal(signal.SIGKILL)
        psutil.wait_procs([server], timeout=10)
        await up.line("nats-server has ended; starting it again", errors=True)
        await both_running(up)
        assert (await up.stop()).code == 0


async def test_wishes_that_cannot_be_are_refused(cli: Cli, tmp_path: Path) -> None:
    for args, words in (
        (("--act",), "--act is for a real cluster"),
        (("--speed", "0"), "--speed is 0"),
        (("--speed", "2", "--context", "x"), "--speed is for the simulated cluster"),
        (("--duration", "-1"), "--duration is -1"),
        (("--port", "70000"), "--port is 70000"),
    ):
        refused = await cli.run("up", *args)
        assert (refused.code, refused.out) == (2, "")
        assert words in refused.err
    config = tmp_path / "kubeconfig"
    config.write_text("apiVersion: v1\nkind: Config\ncontexts: []\nclusters: []\nusers: []\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        nowhere = await cli.run("up", "--port", port, "--context", "nosuch", "--kubeconfig", str(config))
        assert nowhere.code == 1
        assert "nosuch" in nowhere.err
        assert port not in nowhere.err, "nothing was started"
    a_file = tmp_path / "file"
    a_file.touch()
    refused = await cli.run("up", "--data", str(a_file))
    assert refused.code == 1
    assert "it is no directory" in refused.err
