"""The commands that read a log, against one running ``muster up`` with its two jobs."""

import json
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from kit.cli import Cli, Result, Running
from kit.promql import Recorded
from kit.waiting import until
from muster.fakecluster.kuberay import RUNTIME
from muster_tools.alerts import ALERTS, QUESTIONS

pytestmark = pytest.mark.asyncio(loop_scope="module")

TITLES = ["QUEUE", "POLICY", "PRIORITY", "WAITING", "ADMITTED", "RUNNING", "HEAD", "REASON"]


class Demo:
    """A running demo: its first job runs and does not end, its second waits for it."""

    def __init__(self, cli: Cli, up: Running, first: str, second: str, folder: Path) -> None:
        self.cli = cli
        self.up = up
        self.first = first
        self.second = second
        self.folder = folder

    async def run(self, *args: str) -> Result:
        return await self.cli.run(*args)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    cli = Cli(folder)
    async with cli.start("up", "--headless", "--no-jobs") as up:
        await up.line("nats-server ")
        sample = next(path for path in cli.tmp.iterdir() if path.name.startswith("muster-up-")) / "rayjob.yaml"
        endless = sample.read_text().replace("metadata:\n", f"metadata:\n  annotations: {{{RUNTIME}: 10h}}\n", 1)
        (await cli.run("submit", "-", stdin=endless)).ok()
        await up.line("  running  ")
        (await cli.run("submit", "-", stdin=endless)).ok()
        second = (await up.line(lambda line: "  waits  " in line)).split()[2]
        first = (await up.line(lambda line: "  running  " in line)).split()[2]
        yield Demo(cli, up, first, second, folder)


async def test_why_a_job_waits(demo: Demo) -> None:
    told = (await demo.run("why", demo.second)).ok()
    assert told.lines[0] == f"RayJob {demo.second}  InsufficientQuota"
    text = " ".join(told.out.split())
    assert "position 1 of 1, no job is ahead" in text
    assert "It asks for cpu 12, and quota root/algorithm/video has 2 free of 14 (12 in use)" in text
    assert "it is tried again once 10 more are released there" in text
    assert f"{demo.first} cpu 12 running for " in text
    words = [line.split()[3] for line in told.lines if "+" in line[:30]]
    assert words == ["seen", "queued", "waits"]


async def test_why_in_json_and_by_its_bare_name(demo: Demo) -> None:
    bare = demo.second.partition("/")[2]
    story = (await demo.run("why", bare, "-o", "json")).ok().json()
    assert (story["namespace"], story["name"]) == ("video", bare)
    assert story["standing"]["code"] == "InsufficientQuota"
    assert (story["standing"]["position"], story["standing"]["length"]) == (1, 1)
    wanting = story["standing"]["wanting"]
    assert (wanting["quota"], wanting["resource"], wanting["missing"]) == ("root/algorithm/video", "cpu", "10")
    assert [holder["job"] for holder in wanting["holders"]] == [demo.first]


async def test_why_of_a_running_job_with_every_step(demo: Demo) -> None:
    short, full = await demo.run("why", demo.first), await demo.run("why", demo.first, "--all")
    assert full.ok().lines[0].endswith("  Running")
    assert len(full.lines) > len(short.ok().lines)
    for word in ("queued", "reserved", "admitted", "resumed", "running"):
        assert any(f"  {word} " in line for line in full.lines), word


async def test_why_of_nobody_names_who_is_like_it(demo: Demo) -> None:
    unknown = await demo.run("why", "video/rayjob-vidio")
    assert (unknown.code, unknown.out) == (3, "")
    assert "was ever seen in this log" in unknown.err
    assert f"did you mean {demo.first}" in unknown.err or f"did you mean {demo.second}" in unknown.err


async def test_the_tree_with_bars(demo: Demo) -> None:
    shown = (await demo.run("queue", "tree")).ok()
    line = next(line for line in shown.lines if "video" in line and "intern" not in line)
    assert "12 of 14" in line
    assert line.endswith("1 waiting, 1 running")
    assert "█" in line
    ascii_only = (await demo.cli.run("queue", "tree", "--under", "root/devops", PYTHONIOENCODING="ascii")).ok()
    assert ascii_only.out.isascii()
    unknown = await demo.run("queue", "tree", "--under", "root/nope")
    assert unknown.code == 3
    assert "root/algorithm/video" in unknown.err


async def test_the_list_of_queues(demo: Demo) -> None:
    shown = (await demo.run("queue", "ls")).ok()
    assert shown.lines[0].split() == TITLES
    assert shown.lines[1].split()[:7] == ["root/algorithm/video", "Round", "0", "1", "1", "1", demo.second]
    assert len(shown.lines) == 7
    queues = (await demo.run("queue", "ls", "--all", "-o", "json")).ok().json()["queues"]
    video = next(queue for queue in queues if queue["path"] == "root/algorithm/video")
    assert len(queues) == 9
    assert video["head"]["job"] == demo.second
    assert video["used"] == {"cpu": "12", "memory": "12G", "nvidia.com/gpu": "0"}
    names = (await demo.run("queue", "ls", "-o", "name")).ok()
    assert names.lines[0] == "root/algorithm/video"


async def test_tail_prints_every_event_and_resumes(demo: Demo) -> None:
    whole = (await demo.run("tail", "--since", "1", "--no-follow", "-o", "json")).ok()
    events = [json.loads(line) for line in whole.lines]
    assert [events[0]["event"]["type"], events[0]["sequence"]] == ["genesis", 1]
    places = [(event["sequence"], event["index"]) for event in events]
    assert places == sorted(set(places))
    middle = places[len(places) // 2][0]
    rest = (await demo.run("tail", "--since", str(middle), "--no-follow", "-o", "json")).ok()
    again = [json.loads(line) for line in rest.lines]
    known = [event for event in events if event["sequence"] >= middle]
    assert again[: len(known)] == known, "the log may have grown since, and that is all"


async def test_tail_of_one_job_and_of_one_queue(demo: Demo) -> None:
    of_job = (await demo.run("tail", "--since", "1", "--no-follow", "--job", demo.second)).ok()
    shown = [line for line in of_job.lines if not line.startswith("—")]
    assert shown
    name = demo.second.partition("/")[2]
    assert all(name in line for line in shown)
    of_queue = (await demo.run("tail", "--since", "1", "--no-follow", "--queue", "root/devops", "-o", "json")).ok()
    types = {json.loads(line)["event"]["type"] for line in of_queue.lines}
    assert types == {"quota_tree_accepted", "queue_observed"}


async def test_tail_follows(demo: Demo) -> None:
    nobody = await demo.run("tail", "--job", "rayjob-nope")
    assert (nobody.code, nobody.out) == (3, "")
    assert "no job rayjob-nope is in this log; did you mean video/rayjob-video-" in nobody.err
    nowhere = await demo.run("tail", "--queue", "root/algorithm/vide", "--no-follow")
    assert (nowhere.code, "did you mean root/algorithm/video" in nowhere.err) == (3, True)
    async with demo.cli.start("tail", "--queue", "root/algorithm/video", "--since", "1") as tail:
        manifest = (demo.folder / "new.yaml").absolute()
        manifest.write_text(
            "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: rayjob-video-new, namespace: text}\n"
            "spec: {suspend: true, entrypoint: x}\n"
        )
        refused = await demo.run("submit", str(manifest), "--times", "2")
        assert refused.code == 2
        assert "can be created only once" in refused.err
        named = demo.folder / "named.yaml"
        named.write_text(manifest.read_text().replace("namespace: text", "namespace: video"))
        (await demo.run("submit", str(named))).ok()
        line = await tail.line("rayjob-video-new")
        assert "\x1b" not in line


async def test_submit_creates_with_generated_names(demo: Demo) -> None:
    home = next(path for path in demo.cli.tmp.iterdir() if path.name.startswith("muster-up-"))
    created = (await demo.run("submit", str(home / "rayjob.yaml"), "--times", "2")).ok()
    names = [line.split()[1] for line in created.lines]
    assert len(set(names)) == 2
    text = (home / "rayjob.yaml").read_text().replace("namespace: video", "namespace: text")
    piped = (await demo.cli.run("submit", "-", stdin=text)).ok()
    assert piped.lines[0].startswith("RayJob text/rayjob-video-")

    async def waits() -> bool:
        told = await demo.run("why", names[1])
        return told.code == 0 and "waits" in told.out

    await until(waits, 60.0, what="the log to say that it waits")
    missing = await demo.run("submit", "/no/such/file.yaml")
    assert missing.code == 3
    unknown = await demo.cli.run("submit", "-", stdin="apiVersion: x/v1\nkind: Y\nmetadata: {name: z}\n")
    assert unknown.code == 3
    assert "the server has no kind Y in x/v1" in unknown.err


async def test_the_log_is_whole_and_its_leaders_are_known(demo: Demo) -> None:
    info = (await demo.run("log", "info", "-o", "json")).ok().json()
    assert (info["cell"], info["generation"], info["stream"]) == ("main", 1, "MUSTER_LOG_main_1")
    assert info["last_sequence"] == info["commits"] > 20
    assert all(lead["process"] for lead in info["leaders"])
    assert "Leaders:" in (await demo.run("log", "info")).ok().out
    verified = (await demo.run("log", "verify")).ok()
    assert verified.lines[-1] == "whole: nothing is missing"
    again = (await demo.run("log", "init")).ok()
    assert "already exists: generation 1" in again.out


async def test_export_replay_check_and_why_of_a_file(demo: Demo) -> None:
    for name in ("log.jsonl", "log.jsonl.gz"):
        path = str(demo.folder / name)
        exported = (await demo.run("export", "--out", path)).ok()
        assert exported.out == ""
        assert "exported " in exported.err
        replayed = (await demo.run("replay", "--log", path, "--verify")).ok()
        assert replayed.lines[-1].endswith("commits, 0 divergent")
        one = (await demo.run("replay", "--log", path, "--stage", "queue_sorter")).ok()
        assert one.lines[-1].endswith("commits, 0 divergent")
        checked = (await demo.run("check", "--log", path)).ok()
        assert "Not checked here:" in checked.out
        assert checked.lines[-1].endswith(", 0 broken")
        assert (await demo.run("why", demo.first, "--log", path)).ok().lines[0].startswith("RayJob ")
        assert (await demo.run("log", "verify", "--log", path)).ok().lines[-1] == "whole: nothing is missing"
    piped = (await demo.run("export", "--out", "-")).ok()
    assert json.loads(piped.lines[0])["seq"] == 1


async def test_the_doctor_finds_a_healthy_demo(demo: Demo) -> None:
    examined = (await demo.run("doctor")).ok()
    assert examined.lines[-1].startswith("no problem found")
    found = (await demo.run("doctor", "-o", "json")).ok().json()
    assert found["healthy"] is True
    titles = {finding["title"] for finding in found["findings"]}
    assert {"NATS", "clocks", "log", "leaders", "API server", "definitions", "permissions", "other owners"} <= titles


async def test_the_public_stream_tells_each_admission_once(demo: Demo) -> None:
    from muster.bus.connection import connect
    from muster.bus.jetstream import JetStream
    from muster.events.subjects import PUBLIC_STREAM

    url = (await demo.run("log", "info", "-o", "json")).ok().json()["url"]
    connection = await connect(url, name="test")
    try:
        js = JetStream(connection)

        async def told() -> list[str]:
            admitted, seq = [], 1
            while (found := await js.next(PUBLIC_STREAM, "muster.pub.v1.main.workload_admitted.>", seq)) is not None:
                admitted.append(json.loads(found.data)["workload"]["name"])
                seq = found.seq + 1
            return admitted

        assert (await until(told, what="outsiders to be told")).count(demo.first.partition("/")[2]) == 1
    finally:
        await connection.close()


async def test_the_page_of_metrics_answers_what_is_asked_on_call(demo: Demo) -> None:
    """All of Muster in one process, of which each stage leads: the page of a service is a part of it."""
    [address] = set(re.findall(r"http://[\d.]+:\d+/metrics", demo.up.said()))
    recorded = Recorded()

    async def waits() -> bool:
        async with aiohttp.ClientSession() as session, session.get(address) as answer:
            page = await answer.text()
        recorded.scrape(page, 0)
        return bool(recorded.ask('muster_queue_jobs{state="waiting"} > 0')) and "muster_leader" in page

    await until(waits, what="the waiting job in the metrics")
    leaders = recorded.ask("max by (stage) (muster_leader)")
    assert leaders[("stage", "presenter"),] == leaders[("stage", "publisher"),] == 1
    assert set(leaders.values()) == {1}
    assert sum(map(len, recorded.samples[-1].values.values())) < 550, "of 12 services at once; one has fewer than 300"
    for question in QUESTIONS:
        if "increase" not in question.query and "idle" not in question.query:
            assert recorded.ask(question.query), question.query
    found = {each.name for each in ALERTS if recorded.ask(each.query)}
    assert found <= {"AdmittedButNoPods"}, found


async def test_the_nodes_and_what_holds_them(demo: Demo) -> None:
    shown = (await demo.run("nodes")).ok()
    assert shown.lines[0].split()[:2] == ["NODE", "STATE"]
    assert any(demo.first in line for line in shown.lines), shown.out
    assert any(re.search(r"cpu: \S+ free on ready nodes, at most \S+ on one", line) for line in shown.lines)
    found = (await demo.run("nodes", "-o", "json")).ok().json()
    assert found["total"] == len(found["nodes"]) == len((await demo.run("nodes", "-o", "name")).ok().lines)
    holders = {pod["job"] for node in found["nodes"] for pod in node["pods"]} - {""}
    assert holders
    assert holders <= {line.partition("/")[2] for line in (await demo.run("ls", "-o", "name")).ok().lines}


async def test_a_wait_ends_with_what_came_of_it(demo: Demo) -> None:
    started = (await demo.run("wait", demo.first, "--until", "started")).ok()
    assert started.out.startswith(f"RayJob {demo.first}: ")
    late = await demo.run("wait", demo.first, demo.second, "--until", "started", "--timeout", "1s")
    assert late.code == 6
    assert f"RayJob {demo.second}: " in late.err.splitlines()[0], "its status is said while it waits"
    assert "muster wait: not started after 1s: RayJob " in late.err


async def test_a_list_is_watched_and_asked_for_by_owner(demo: Demo) -> None:
    async with demo.cli.start("ls", "--watch", "-o", "json") as watching:
        shown = json.loads(await watching.line(demo.second.partition("/")[2]))
        assert shown["state"] == "waiting"
        assert (await watching.stop(signal.SIGINT)).code == 130
    mine = (await demo.run("ls", "--mine")).ok()
    assert mine.out.startswith("No job of ")


async def test_what_was_used_is_added_up(demo: Demo) -> None:
    found = (await demo.run("usage", "--resource", "cpu", "-o", "json")).ok().json()
    (video,) = [row for row in found["rows"] if row["queue"] == "root/algorithm/video"]
    assert video["used_hours"] > 0
    assert video["runs"] == 1
    (nobody,) = (await demo.run("usage", "--by", "owner", "--resource", "cpu", "-o", "json")).ok().json()["rows"]
    assert nobody["owner"] == ""


async def test_lists_show_any_earlier_moment_of_a_recorded_log(demo: Demo) -> None:
    log = demo.folder / "past.jsonl.gz"
    (await demo.run("export", "--out", str(log))).ok()
    source = ("--log", str(log))
    assert len((await demo.run("ls", "-o", "name", *source)).ok().lines) >= 2
    assert (await demo.run("ls", "-o", "name", "--at", "1", *source)).ok().lines == []
    assert (await demo.run("queue", "ls", "-o", "name", "--at", "1", *source)).ok().lines == []
    assert (await demo.run("queue", "ls", "-o", "name", *source)).ok().lines
    for words in (("queue", "tree", "--at", "-10m"), ("nodes", "--at=-10m")):
        early = await demo.run(*words)
        assert early.code == 3
        assert "lies before the beginning of this log" in early.err
    late = await demo.run("ls", "--at", "99999999", *source)
    assert late.code == 3
    assert "lies after the end of this log" in late.err
