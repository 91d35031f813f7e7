"""The dashboard of the demo in a real Chromium: what people ask it, at any moment, by mouse and keys, and for all."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kit.browser import Page, axe, browser
from kit.cli import Cli

PAGES = {"": "Quotas", "jobs": "Asks for", "nodes": "gpu-1", "whatif": "Outcome", "health": "muster doctor"}
LOCAL = "(at) => new Date(new Date(at) - new Date().getTimezoneOffset() * 60000 + 999).toISOString().slice(0, 19)"


async def asked(page: Page, path: str) -> dict[str, object]:
    found: dict[str, object] = await page.run(f"fetch('/api/v1/{path}').then((answer) => answer.json())")
    return found


@pytest.fixture
async def shown(tmp_path: Path) -> AsyncIterator[tuple[Page, str]]:
    """The page of a demo that lives, where something waits, and its address."""
    async with Cli(tmp_path).start("up", "--headless", "--speed", "4", "--story", "teams") as up:
        url = (await up.line(lambda line: "Dashboard" in line)).split()[-1]
        await up.line(lambda line: " evicted " in line)
        async with browser() as page:
            await page.size(1440, 900)
            await page.open(url)
            yield page, url
            assert page.problems == [], "neither an error nor a violation of the policy"


@pytest.mark.slow
async def test_what_people_ask_of_the_dashboard(shown: tuple[Page, str]) -> None:
    page, url = shown
    await page.sees("interns")
    # Why does it wait: click the job, read the limit, click an event, and follow its causes to what was observed.
    await page.click("a.job", "vision/too-large-0")
    await page.sees("Exceeds quota(nvidia.com/gpu)")
    await page.click("button.event", "queued")
    await page.sees("observed (watcher)")
    assert "event=" in await page.run("location.search")
    # Who took it back: the eviction is among what happened, and its moment is one click away.
    await page.open(f"{url}job/interns/sweep-1")
    await page.click("button.event", "language/urgent-0")
    await page.sees("decided by quota accountant")
    await page.click(".history button.when")
    await page.holds("new URLSearchParams(location.search).has('at')")
    then = await page.run("new URLSearchParams(location.search).get('at')")
    await page.holds("document.querySelector('.time').classList.contains('past')")
    # The same moment everywhere, and an address that a colleague can open.
    await page.click("nav a", "Overview")
    await page.holds(f"new URLSearchParams(location.search).get('at') === {json.dumps(then)}")
    await page.open(f"{url}?at={then}")
    await page.sees("Happened until then")
    queues = await asked(page, f"queues?at={then}")
    used = {each["name"]: each["amounts"][-1]["text"] for each in queues["queues"]}  # type: ignore[attr-defined]
    await page.sees(used["interns"].split(" of ")[0])
    # Back by one decision with the keys of the slider, then to now.
    await page.run("document.querySelector('.time input').focus()")
    await page.call(
        "Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft", code="ArrowLeft", windowsVirtualKeyCode=37
    )
    await page.holds(f"Number(new URLSearchParams(location.search).get('at')) < {then}")
    await page.click(".time button", "Now")
    await page.holds("!location.search.includes('at=')")
    # So long ago, in an address: it is shown as a time.
    await page.open(f"{url}?at=-1s")
    await page.holds("/[0-9]{2}:[0-9]{2}:[0-9]{2}/.test(document.querySelector('.moment')?.innerText || '')")
    # What if: the limit that still binds is named.
    changes = [{"queue": "root/research/vision", "field": "max", "resource": "nvidia.com/gpu", "value": "28"}]
    await page.open(f"{url}whatif?job=vision/too-large-0&change={json.dumps(changes)}")
    await page.sees("request 48, max 28")
    await page.click("button", "more nodes")
    await page.run("document.querySelector('form input[name=value]').value = '8'")
    await page.click("section button", "Add")
    await page.sees("1 more node with 8 GPU each")
    # Which node is fragmented.
    await page.click("nav a", "Nodes")
    await page.sees("GPUs free")
    # Another page by a key.
    await page.call("Input.dispatchKeyEvent", type="keyDown", key="2", text="2")
    await page.holds("location.pathname === '/jobs'")
    await no_figure_of_now_under_a_past_clock(page, url)
    await it_speaks_the_language_of_the_reader(page, url)


ENGLISH = {
    "the",
    "is",
    "are",
    "it",
    "of",
    "and",
    "has",
    "its",
    "for",
    "waits",
    "free",
    "running",
    "waiting",
    "sequence",
}


async def it_speaks_the_language_of_the_reader(page: Page, url: str) -> None:
    """A switch on the page: labels, headlines, reasons and histories are in Chinese, and no word of English is left."""
    await page.open(url)
    await page.holds("!!document.querySelector('select.language')")
    await page.run(
        "(e => { e.value = 'zh-CN'; e.dispatchEvent(new Event('change', { bubbles: true })); })"
        "(document.querySelector('select.language'))"
    )
    await page.holds("document.documentElement?.lang === 'zh-CN' && !!document.body?.innerText.includes('等待原因')")
    for path in ("", "jobs", "nodes", "whatif", "health", "job/vision/too-large-0"):
        await page.open(f"{url}{path}")
        await page.holds("!!document.querySelector('select.language') && !!document.querySelector('main h1')")
        await page.holds("!document.body.innerText.includes('加载中')")
        words = await page.run("document.querySelector('main').innerText")
        assert not ENGLISH & {*str(words).split()}, (
            path,
            [line for line in str(words).splitlines() if ENGLISH & {*line.split()}],
        )
    await page.run("localStorage.clear()")


SLOW = """
(() => { const real = window.fetch; const held = []; window.fetch = (url, ...rest) => String(url).includes('at=')
  ? new Promise((done) => held.push(() => done(real(url, ...rest)))) : real(url, ...rest);
  window.goes_on = () => { window.fetch = real; held.forEach((each) => each()); }; })()
"""
FIGURES = "document.querySelectorAll('main .counts b, main td.number, main .cells, main .strip, main .feed li').length"


async def no_figure_of_now_under_a_past_clock(page: Page, url: str) -> None:
    """The server takes its time for the past: until it answers, no figure is shown, and what is loading is said."""
    await page.open(url)
    await page.holds(f"{FIGURES} > 20")
    await page.run(SLOW)
    await page.click(".time button", "◀")
    await page.holds("document.querySelector('.time').classList.contains('past')")
    await page.holds(f"{FIGURES} === 0 && document.querySelector('main').innerText.includes('Loading')")
    await page.run("window.goes_on()")
    await page.holds(f"{FIGURES} > 20")


class User:
    """Does tasks on the page as a newcomer would: from its first sight, by what can be seen, with a count of clicks."""

    def __init__(self, page: Page, url: str, pictures: Path) -> None:
        self.page = page
        self._url = url
        self._pictures = pictures
        self._clicks = 0

    async def click(self, selector: str, text: str = "") -> None:
        self._clicks += 1
        await self.page.click(selector, text)

    async def types(self, field: str, value: str) -> None:
        """A click into a field of a form, and keys."""
        self._clicks += 1
        await self.page.holds(f"!!document.querySelector('{field}')")
        await self.page.run(f"document.querySelector('{field}').value = {json.dumps(value)}")

    async def chooses(self, field: str, value: str) -> None:
        """A value of a list."""
        self._clicks += 1
        await self.page.holds(f"[...document.querySelector('{field}').options].some(each => each.value === '{value}')")
        event = "dispatchEvent(new Event('change', { bubbles: true }))"
        await self.page.run(f"(e => {{ e.value = '{value}'; e.{event}; }})(document.querySelector('{field}'))")

    async def goes_to(self, at: object) -> None:
        """To a date and time."""
        await self.click("button.moment")
        await self.types("input[name=when]", await self.page.run(f"({LOCAL})('{at}')"))
        await self.click(".asked button", "Show")
        await self.page.holds("document.querySelector('.time').classList.contains('past')")
        await self.page.sees("Happened until then")

    @asynccontextmanager
    async def task(self, name: str, sees: str) -> AsyncIterator[None]:
        self._clicks = 0
        await self.page.open(self._url)
        await self.page.sees("Happening")
        yield
        await self.page.sees(sees)
        await self.page.picture(self._pictures / f"{name.replace(' ', '-')}.png")
        assert self._clicks <= 4, f"{name} takes {self._clicks} clicks"


@pytest.mark.slow
async def test_each_task_of_a_first_day_takes_four_clicks_at_most(shown: tuple[Page, str], tmp_path: Path) -> None:
    page, url = shown
    user = User(page, url, tmp_path)
    async with user.task("why does my job wait", sees="request 48, max 24"):
        await user.click("a.job", "vision/too-large-0")
    events = (await asked(page, "jobs/interns/sweep-1"))["events"]
    taken = next(each["at"] for each in events if each["word"] == "evicted")  # type: ignore[attr-defined]
    async with user.task("who took my GPU at that time", sees="language/urgent-0 was within the min of its queue"):
        await user.goes_to(taken)
        await user.click(".feed a.job", "interns/sweep-1")
    async with user.task("what if vision had 8 more", sees="request 48, max 32"):
        await user.click("a.job", "vision/too-large-0")
        await user.click("a.button", "What if")
        await page.holds("document.querySelector('input[name=value]')?.placeholder === 'now 24'")
        await user.types("input[name=value]", "32")
        await user.click("section button", "Add")
    async with user.task("when will it start", sees="cannot start until it, or its quota, is changed"):
        await user.click("a.job", "vision/too-large-0")
    async with user.task("which node is fragmented", sees="of 8 GPUs free"):
        await user.click("nav a", "Nodes")
    async with user.task("who borrows", sees="borrowed"):
        row = "[...document.querySelectorAll('.tree tr')].find((e) => e.innerText.includes('interns'))"
        await page.holds(f"!!{row}?.querySelector('.hot')")
    async with user.task("what failed", sees="search/broken-0"):
        await user.click(".counts a", "failed")
    async with user.task("is the system healthy", sees="some objects need attention"):
        await user.click(".condition")
    first = (await asked(page, "jobs/language/pretrain-0"))["events"][0]["at"]  # type: ignore[index]
    async with user.task("show me an earlier time", sees="language/pretrain-0"):
        await user.goes_to(first)
    async with user.task("hold all that waits for the same", sees="Copied"):
        await page.run("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
        await user.click(".counts a", "waiting")
        await user.chooses(".filters select", "reason")
        await user.click(".group button", "Select")
        await user.click(".bulk .button", "Copy the commands")
        rows = "document.querySelectorAll('tbody')[0].querySelectorAll('td input:checked').length"
        await page.holds(f"{rows} > 0 && window.copied.split('\\n').length === {rows}")
        assert (await page.run("window.copied")).startswith("muster hold RayJob/")
    async with user.task("what became of my job", sees="Timeline"):
        await user.types("#find", "interns/sweep-1")
        await page.run("document.querySelector('header form').requestSubmit()")
        await page.sees("evicted leaves")
        words = await page.run("document.querySelector('.life').getAttribute('aria-label')")
        assert words.startswith("waited ") and ", ran " in words
    async with user.task("send this to a colleague", sees="Copied"):
        await page.run("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
        await user.click("a.job", "vision/too-large-0")
        await page.holds("!document.querySelector('button.share').disabled")
        await user.click("button.share", "Copy link")
        await page.holds("/vision.too-large-0.at=[0-9]+$/.test(window.copied || '')")


@pytest.mark.slow
async def test_it_can_be_used_by_all_in_light_and_dark_wide_and_narrow(shown: tuple[Page, str], tmp_path: Path) -> None:
    page, url = shown
    job = (await asked(page, "jobs?state=waiting"))["jobs"][0]  # type: ignore[index]
    owned = {"jobs?group=owner": "no owner", "jobs?state=waiting&group=reason": "Select"}
    places = {**PAGES, **owned, f"job/{job['namespace']}/{job['name']}": "What happened"}
    script = axe()
    for width, dark in ((1440, False), (400, True)):
        await page.size(width, 900, dark=dark)
        for path, text in places.items():
            await page.open(url + path)
            await page.sees(text)
            await page.holds("!document.body.innerText.includes('Loading…')")
            name = path.partition("/")[0].replace("?", "-").replace("&", "-") or "overview"
            await page.picture(tmp_path / f"{name}-{width}.png")
            await page.run(script + "; true")
            found = await page.run("axe.run().then(({violations}) => violations)")
            assert found == [], f"{path} at {width}: {[(each['id'], each['nodes'][0]['html']) for each in found]}"
            await page.click("button.moment")
            await page.holds("!!document.querySelector('.asked')")
            assert await page.run("document.documentElement.scrollWidth") <= width, f"{path} is wider than {width}"
