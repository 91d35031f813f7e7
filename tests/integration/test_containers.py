"""The containers that tests run as processes end with the tests, however those end."""

import asyncio
import os
import signal
import sys
import textwrap
from pathlib import Path
from typing import Any

import psutil
import pytest

from kit.container import runs_here
from kit.installation import Installation
from kit.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


@pytest.mark.skipif(not runs_here(), reason="`unshare --map-root-user --mount` is refused: no container was run")
async def test_a_container_dies_with_a_killed_test_run(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import asyncio
            from pathlib import Path
            from kit.container import Container

            async def main():
                place = Path({str(tmp_path / "pod")!r})
                place.mkdir()
                one = Container(place, ["sleep", "600"], {{}}, ip="127.0.0.1", files={{}}, disks={{}})
                await one.start()
                print(one._process.pid, flush=True)
                await one.ended()

            asyncio.run(main())
            """
        )
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    run = await asyncio.create_subprocess_exec(sys.executable, str(script), stdout=asyncio.subprocess.PIPE, env=environ)
    assert run.stdout is not None
    pid = int(await run.stdout.readline())

    async def sleeps() -> bool:
        return psutil.Process(pid).name() == "sleep"

    await until(sleeps, what="the command of the container")
    run.send_signal(signal.SIGKILL)
    await run.wait()

    def dead() -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    await until(dead, what="the container to be gone")


class Part:
    """A part of an installation that notes whether it was left, and fails when it is told to."""

    def __init__(self, *, enters: bool = True, leaves: bool = True) -> None:
        self.left = False
        self._enters, self._leaves = enters, leaves

    async def __aenter__(self) -> "Part":
        if not self._enters:
            raise OSError("cannot begin")
        return self

    async def __aexit__(self, *error: object) -> None:
        self.left = True
        if not self._leaves:
            raise OSError("cannot end")

    async def close(self) -> None:
        await self.__aexit__()


@pytest.mark.parametrize("fails", ["setup", "sweep", "connection", "test"])
async def test_an_installation_that_fails_ends_its_pods(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kubelet, cluster = Part(), Part(enters=fails != "setup", leaves=fails != "sweep")
    found: Any = Installation.__new__(Installation)
    found.kubelet, found.cluster, found._connection = kubelet, cluster, Part(leaves=fails != "connection")
    monkeypatch.setattr(found, "_furnish", lambda: None, raising=False)
    with pytest.raises((OSError, ZeroDivisionError)):
        async with found:
            assert fails != "setup"
            if fails == "test":
                raise ZeroDivisionError
    assert kubelet.left
