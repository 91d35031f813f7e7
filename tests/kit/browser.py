"""A real headless Chromium, spoken to by its own protocol: open a page, press keys, click, look, take a picture."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from kit.waiting import until
from muster_tools import dashboard

CACHE = Path.home() / ".cache/muster"

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-color-profile=srgb",
    "--remote-debugging-port=0", "--disable-dev-shm-usage",
)  # fmt: skip
START_S = 60.0


def installed() -> str:
    """The browser's program; raises LookupError with what to do."""
    found = next(filter(None, map(shutil.which, NAMES)), "")
    if not found:
        raise LookupError(
            "no Chromium: `make chromium` installs Debian's, as root where apt is; or install one by hand"
        )
    return found


# In one turn of the page: where a stream draws it again and again, an element moves between a look and a click.
_CLICK = """(selector, text) => {
  const found = [...document.querySelectorAll(selector)].find((e) => e.innerText.includes(text));
  if (!found) return false;
  found.scrollIntoView({ block: "center", behavior: "instant" });
  const { left, top, width, height } = found.getClientRects()[0] || found.getBoundingClientRect();
  const hit = document.elementFromPoint(left + width / 2, top + height / 2);
  if (!hit || !(found.contains(hit) || hit.contains(found))) return false;
  found.click();
  return true;
}"""


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.problems: list[str] = []
        """What the console called an error, and exceptions; violations of the policy are among them."""

    async def listen(self) -> None:
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                waiting = self._waiting.pop(said["id"], None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(said)
            elif said["method"] == "Runtime.exceptionThrown":
                self.problems.append(str(said["params"]["exceptionDetails"].get("exception", {}).get("description")))
            elif said["method"] == "Log.entryAdded" and said["params"]["entry"]["level"] == "error":
                self.problems.append(said["params"]["entry"]["text"])

    async def call(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        said = await asyncio.wait_for(self._waiting[number], START_S)
        assert "error" not in said, said
        return said["result"]

    async def run(self, script: str) -> Any:
        """The value of an expression, awaited if it is a promise."""
        found = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def open(self, url: str) -> None:
        """Go to an address; what follows meets the new document."""
        await self.run("window.left = true")
        await self.call("Page.navigate", url=url)
        await self.holds("!window.left && !!document.body")

    async def sees(self, text: str, *, limit_s: float = 20.0) -> None:
        """Wait until a text is on the page."""
        await self.holds(f"document.body && document.body.innerText.includes({json.dumps(text)})", limit_s=limit_s)

    async def holds(self, script: str, *, limit_s: float = 20.0) -> None:
        """Wait until an expression is true."""

        async def true() -> bool:
            return bool(await self.run(script))

        await until(true, limit_s)

    async def click(self, selector: str, text: str = "") -> None:
        """Click the first element of a selector with a text, once it can be seen and nothing lies over it."""
        await self.holds(f"({_CLICK})({json.dumps(selector)}, {json.dumps(text)})")

    async def size(self, width: int, height: int, *, dark: bool = False) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.call("Emulation.setEmulatedMedia", features=scheme)

    async def picture(self, path: Path) -> None:
        found = await self.call("Page.captureScreenshot", format="png")
        _write(path, base64.b64decode(found["data"]))


def _write(path: Path, body: bytes) -> None:
    path.write_bytes(body)


def _started(program: str, profile: str) -> subprocess.Popen[bytes]:
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    command = [program, *FLAGS, *root, f"--user-data-dir={profile}", "about:blank"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _port(profile: str) -> int | None:
    """The port of its protocol, once it says one."""
    path = Path(profile, "DevToolsActivePort")
    text = path.read_text() if path.exists() else ""
    return int(text.split("\n")[0]) if "\n" in text else None


def axe() -> str:
    """The script of axe-core, by the lock file of the dashboard; kept for the next time."""
    lock = (dashboard.GATEWAY / "package-lock.json").read_bytes()
    kept = CACHE / f"axe-{hashlib.sha256(lock).hexdigest()[:16]}.js"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            dashboard.install(Path(folder), dev=True)
            shutil.copy(Path(folder, "node_modules/axe-core/axe.min.js"), kept)
    return kept.read_text()


@contextlib.asynccontextmanager
async def browser() -> AsyncIterator[Page]:
    """A page of a new browser with an empty profile. Raises LookupError where there is none."""
    program = installed()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:  # Its helpers may still write there.
        process = _started(program, profile)
        try:
            port = await until(lambda: _port(profile), START_S)
            url = f"http://127.0.0.1:{port}/json"
            async with aiohttp.ClientSession() as session:
                async with session.get(url) as answer:
                    tab = next(each for each in await answer.json() if each["type"] == "page")
                async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    page = Page(socket)
                    listening = asyncio.ensure_future(page.listen())
                    for domain in ("Page", "Runtime", "Log"):
                        await page.call(f"{domain}.enable")
                    yield page
                    listening.cancel()
        finally:
            process.terminate()
            process.wait(20)
