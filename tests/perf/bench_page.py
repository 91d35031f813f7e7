"""The dashboard in a real Chromium where thousands wait: how soon it is there, and how smooth it is while events come.

A cell with N waiting RayJobs and M nodes is served over HTTP on loopback; a hundred events a second are folded and
streamed. Each page is opened anew in a browser on the same machine, and watched for a while.

Run: python tests/perf/bench_page.py [--waiting 10000] [--nodes 1000] [--rounds 1]
"""

import asyncio
import contextlib
from pathlib import Path
from tempfile import TemporaryDirectory

from bench_gateway import EVENTS_A_SECOND, Served, served_cell
from figures import Progress, Table, by_hand

from kit.browser import Page, browser

WATCHED_S = 10
SEEN = {
    "overview": ("", ".tree tbody tr"),
    "the line": ("jobs?state=waiting", ".list tbody tr"),
    "nodes": ("nodes", ".nodes .node"),
}
"""{page: its path, and what it is for}"""
TIMER = """
window.frames_ms = [];
let before = performance.now();
const frame = (now) => { window.frames_ms.push(now - before); before = now; requestAnimationFrame(frame); };
requestAnimationFrame(frame);
new MutationObserver((_, watch) => {
  if (document.querySelector(%r)) { window.seen_ms = performance.now(); watch.disconnect(); }
}).observe(document, { childList: true, subtree: true });
"""
FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime || 0"


async def measure(waiting: int, machines: int, rounds: int, say: Progress, watched_s: float = WATCHED_S) -> Table:
    say(f"page: a cell of {waiting} waiting jobs on {machines} nodes")
    state = served_cell(waiting, machines)
    found = []
    with TemporaryDirectory() as folder:
        served = Served(state, Path(folder))
        await served.server.start()
        busy = asyncio.gather(served.busy(), served.live.foresight.keep())
        try:
            async with browser() as page:
                await page.size(1440, 900)
                for number in range(rounds):
                    say(f"page: round {number + 1}")
                    found.append(await _round(page, f"http://127.0.0.1:{served.server.port}/", watched_s))
                assert page.problems == []
        finally:
            busy.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await busy
            await served.server.stop()
            await served.live.foresight.ahead.stop()
    about = (
        f"{waiting:,} waiting RayJobs, {machines:,} nodes, {EVENTS_A_SECOND} events a second folded and streamed "
        f"meanwhile. A headless Chromium on the same machine opens each page anew, and shows it for {watched_s:g} s. A "
        "page is there when what it is for is in it: the quotas, the first rows of the line, the nodes."
    )
    return Table("The dashboard in a browser", about, found)


async def _round(page: Page, url: str, watched_s: float) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, (path, selector) in SEEN.items():
        timer = await page.call("Page.addScriptToEvaluateOnNewDocument", source=TIMER % selector)
        await page.open(url + path)
        await page.holds(f"window.seen_ms > 0 && {FIRST_PAINT} > 0", limit_s=60)
        figures[f"{name}: first paint, ms"] = await page.run(FIRST_PAINT)
        figures[f"{name}: it is there, ms"] = await page.run("window.seen_ms")
        await page.run("window.frames_ms = []")
        await asyncio.sleep(watched_s)
        frames = sorted(await page.run("window.frames_ms"))
        figures[f"{name}: a frame, live, ms, 99 %"] = frames[len(frames) * 99 // 100]
        figures[f"{name}: a frame, live, ms, longest"] = frames[-1]
        await page.call("Page.removeScriptToEvaluateOnNewDocument", identifier=timer["identifier"])
    return figures


def main() -> None:
    by_hand(measure, __doc__, waiting=10_000, machines=1_000, rounds=1)


if __name__ == "__main__":
    main()
