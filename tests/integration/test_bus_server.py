"""The server we start ourselves: where it listens, what it leaves behind, how it ends."""

import asyncio
import shutil
import socket
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import psutil
import pytest

from kit.nats import SMALL, commit
from kit.waiting import until
from muster.bus.cell import open_log
from muster.bus.connection import connect
from muster.bus.errors import BusError
from muster.bus.jetstream import JetStream
from muster.bus.server import PORTS, EmbeddedServer, free_port


async def test_it_listens_on_loopback_only_with_large_messages_allowed() -> None:
    async with EmbeddedServer(monitor_port=0) as server:
        assert server.pid is not None
        listening = [each for each in psutil.Process(server.pid).net_connections("tcp") if each.status == "LISTEN"]
        assert {each.laddr.ip for each in listening} == {"127.0.0.1"}
        assert {each.laddr.port for each in listening} == {server.port, server.monitor_port}
        assert server.port in PORTS
        connection = await connect(server.url, name="test")
        assert connection.max_payload == 8 * 1024 * 1024
        await connection.close()


async def test_a_temporary_server_leaves_nothing_behind() -> None:
    server = EmbeddedServer()
    await server.start()
    directory, pid = server.directory, server.pid
    assert directory.is_dir()
    await server.stop()
    assert not directory.exists()
    assert pid is not None
    assert not psutil.pid_exists(pid)
    await server.stop()


async def test_kept_data_is_there_at_the_next_start(tmp_path: Path) -> None:
    data = tmp_path / "with a space" / "data"
    async with EmbeddedServer(data=data) as server:
        connection = await connect(server.url, name="test")
        log = await open_log(JetStream(connection), "main", create=True, limits=SMALL)
        await log.append(commit(1), expected=0)
        await connection.close()
    async with EmbeddedServer(data=data) as server:
        connection = await connect(server.url, name="test")
        again = await open_log(JetStream(connection), "main")
        assert again.identity == log.identity
        assert await again.end() == 2
        await connection.close()


async def test_data_in_use_is_refused(tmp_path: Path) -> None:
    async with EmbeddedServer(data=tmp_path):
        with pytest.raises(BusError, match="in use by another process; stop it or set --data"):
            await EmbeddedServer(data=tmp_path, data_option="--data").start()


async def test_data_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BusError, match="set --data"):
        await EmbeddedServer(data=tmp_path / "file" / "data", data_option="--data").start()


async def test_a_taken_port_is_named_with_the_option_that_sets_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BusError, match=rf"port {port} on 127\.0\.0\.1 is taken; .* set --nats-port"):
            await EmbeddedServer(port=port, port_option="--nats-port").start()


async def test_a_given_port_is_used() -> None:
    port = free_port()
    async with EmbeddedServer(port=port) as server:
        assert server.url == f"nats://127.0.0.1:{port}"


def test_no_port_is_given_twice() -> None:
    """Many are asked for before anybody listens at the first: two services at one port would not both run."""
    assert len({free_port() for _ in range(500)}) == 500


async def test_a_bad_configuration_is_shown_in_its_own_words() -> None:
    with pytest.raises(BusError, match="no_such_setting"):
        await EmbeddedServer(config="no_such_setting: 1\n").start()


async def test_without_the_binary_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(BusError, match=r"kube-muster\[local\]"):
        await EmbeddedServer().start()


async def test_the_binary_of_path_serves_when_there_is_no_wheel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scripts = sysconfig.get_path("scripts")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("PATH", scripts)
    async with EmbeddedServer() as server:
        assert server.pid is not None


async def test_killed_and_started_again_it_has_its_port_and_data() -> None:
    async with EmbeddedServer() as server:
        connection = await connect(server.url, name="test", reconnect_wait_s=0.05)
        log = await open_log(JetStream(connection), "main", create=True, limits=SMALL)
        seq = await log.append(commit(1), expected=0)
        port, pid = server.port, server.pid
        await server.kill()
        assert server.pid is None
        await server.restart()
        assert server.port == port
        assert server.pid != pid
        assert await log.append(commit(2), expected=seq) == seq + 1
        await connection.close()


async def test_it_dies_with_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(
            """
            import asyncio
            from muster.bus.server import EmbeddedServer

            async def main():
                server = EmbeddedServer()
                await server.start()
                print(server.pid, server.directory, flush=True)
                await asyncio.Event().wait()

            asyncio.run(main())
            """
        )
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, str(script), stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        line = await parent.stdout.readline()
        pid, directory = int(line.split()[0]), line.split()[1].decode()
        assert psutil.pid_exists(pid)
    finally:
        parent.kill()
        await parent.wait()

    def dead() -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    await until(dead, what="the server to be gone")
    # Nobody was left to do it.
    shutil.rmtree(directory)
