"""Founding and inspecting the log of a cell on a NATS that is already there, and what is said when it is not."""

from pathlib import Path

import pytest

from kit.cli import Cli
from kit.nats import commit, new_cell
from muster.bus.cell import open_log
from muster.bus.jetstream import JetStream
from muster.bus.server import EmbeddedServer
from muster.events.subjects import log_stream

MIB = str(16 << 20)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


async def test_a_log_is_founded_inspected_and_verified(
    cli: Cli, nats_server: EmbeddedServer, cell: str, js: JetStream
) -> None:
    where = ("--url", nats_server.url, "--cell", cell)
    for command in (("log", "info"), ("log", "verify"), ("why", "a/b"), ("queue", "ls")):
        missing = await cli.run(*command, *where)
        assert missing.code == 3, command
        assert f"found it with `muster log init --cell {cell}`" in missing.err
    founded = (await cli.run("log", "init", "--max-bytes", MIB, *where)).ok()
    assert f"The log of cell {cell} was created: generation 1" in founded.out
    assert "of 16.0 MiB used" in founded.out
    again = (await cli.run("log", "init", *where)).ok()
    assert "already exists" in again.out
    info = (await cli.run("log", "info", "-o", "json", *where)).ok().json()
    assert (info["max_bytes"], info["last_sequence"], info["generation"]) == (16 << 20, 1, 1)
    assert {lead["process"] for lead in info["leaders"]} == {""}
    assert "none" in (await cli.run("log", "info", *where)).ok().out
    assert (await cli.run("log", "verify", *where)).ok().lines[-1] == "whole: nothing is missing"
    empty = (await cli.run("queue", "tree", *where)).ok()
    assert "No quota tree is in force" in empty.out
    assert (await cli.run("why", "a/b", *where)).code == 3
    log = await open_log(js, cell)
    await log.append(commit(1), expected=0)
    verified = (await cli.run("log", "verify", *where)).ok()
    assert "2 commits, 2 events" in verified.out
    tail = (await cli.run("tail", "--no-follow", *where)).ok()
    assert len([line for line in tail.lines if not line.startswith("—")]) == 2
    examined = await cli.run("doctor", "--url", nats_server.url, "--cell", cell)
    assert "fix  leaders: no process leads" in examined.out


async def test_a_lost_log_gets_its_next_generation(cli: Cli, nats_server: EmbeddedServer, js: JetStream) -> None:
    cell = new_cell()
    where = ("--url", nats_server.url, "--cell", cell)
    (await cli.run("log", "init", "--max-bytes", MIB, *where)).ok()
    await js.delete(log_stream(cell, 1))
    lost = await cli.run("log", "info", *where)
    assert lost.code == 3
    assert "is gone" in lost.err
    founded = (await cli.run("log", "init", "--max-bytes", MIB, *where)).ok()
    assert "was created: generation 2" in founded.out
    assert "An earlier generation is lost" in founded.out


async def test_wrong_settings_are_refused_before_anything_is_done(cli: Cli, nats_server: EmbeddedServer) -> None:
    for args, words in (
        (("--cell", "Not A Cell"), "Not A Cell"),
        (("--cell", "x", "--replicas", "2"), "JetStream takes 1, 3 or 5"),
    ):
        refused = await cli.run("log", "init", "--url", nats_server.url, *args)
        assert refused.code == 2
        assert words in refused.err
    refused = await cli.run("config", "show", MUSTER_NOTHING="1")
    assert refused.code == 2
    assert "MUSTER_NOTHING is no setting" in refused.err


async def test_settings_and_where_they_come_from(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "muster.yaml"
    path.write_text("cell: gpu\nreplicas: 3\n")
    environ = {"MUSTER_CONFIG": str(path), "MUSTER_CELL": "cpu", "MUSTER_NATS_URL": "nats://me:secret@host:4222"}
    shown = (await cli.run("config", "show", "-o", "json", **environ)).ok().json()
    assert shown["cell"] == {"value": "cpu", "from": "MUSTER_CELL"}
    assert shown["replicas"] == {"value": 3, "from": str(path)}
    assert shown["act"] == {"value": True, "from": "default"}
    assert shown["nats_url"]["value"] == "nats://***@host:4222"
    table = (await cli.run("config", "show", **environ)).ok()
    assert "secret" not in table.out


async def test_nobody_there_is_said_with_what_to_do(cli: Cli) -> None:
    nothing = await cli.run("queue", "ls")
    assert (nothing.code, nothing.out) == (3, "")
    assert "start one with `muster up`" in nothing.err
    unreachable = await cli.run("queue", "ls", "--url", "nats://127.0.0.1:1")
    assert unreachable.code == 1
    assert "connection refused" in unreachable.err
    examined = await cli.run("doctor", "--url", "nats://127.0.0.1:1")
    assert examined.code == 1
    assert "fix  NATS" in examined.out
    alone = await cli.run("doctor", HOME=str(cli.tmp))
    assert alone.code == 3, "nothing was examined, so nothing is fine"
    assert alone.lines[-1].startswith(
        "nothing was examined: name a log with --url nats://HOST:PORT and a cluster with "
    )
    told = (await cli.run("doctor", "-o", "json", HOME=str(cli.tmp))).json()
    assert (told["examined"], told["healthy"]) == (False, False)


async def test_no_colour_but_on_a_terminal(cli: Cli) -> None:
    for args in (("--help",), ("up", "--help"), ("version",), ("config", "show")):
        shown = (await cli.run(*args, FORCE_COLOR="1")).ok()
        assert "\x1b" not in shown.out, args
