"""What the API server shows is compared with what should be there: edits, deletions and returns heal cheaply."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from typing import Any

from test_gang_starves import member

from kit.elastic import kai_queue
from kit.facts import node
from kit.shell import Cell, play, small_job
from kit.story import quota_tree
from muster.core.objects.meta import ENQUEUE_STAMPS, KAI_QUEUE, TIMES, is_label_value
from muster.core.reading.kubequeue import QUEUE_NAMESPACE, QUOTA_FULLNAME
from muster.kube.paths import describe
from muster.model import api
from muster.model.api import MERGE_PATCH
from muster.runtime.presenting.there import UNSEEN_S

Obj = dict[str, Any]
SHOWN = api.POD_GROUPS[1]
SOON_S = 6.0
"""Within this time an object is as it should be."""
ROOM = {"cpu": 40, "memory": "100Gi"}


class Counted(Cell):
    """A cell that counts the writes of its presenter: ``VERB RESOURCE`` and the status of the answer."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.writes: Counter[tuple[str, int]] = Counter()

    def _runners(self, service: str, process: str, log: Any) -> list[Any]:
        before = len(self.transports)
        found = super()._runners(service, process, log)
        if service == "presenter":
            transport = self.transports[before]
            request = transport.request

            async def counted(method: str, path: str, **given: Any) -> Any:
                answer = await request(method, path, **given)
                if method != "GET":
                    self.writes[" ".join(describe(method, path)), answer.status] += 1
                return answer

            transport.request = counted
        return found


def tree(*leaves: str) -> Obj:
    children = tuple(node(leaf, {}, ROOM, (leaf,)) for leaf in leaves)
    return quota_tree(node("root", ROOM, ROOM, children=children))


def put_tree(cell: Cell, wanted: Obj) -> None:
    """As ``kubectl replace``: the whole object, without a status."""
    now = cell.request("GET", api.QUOTA_TREES, "kube-system", "elasticquotatree")
    body = wanted | {"metadata": {**wanted["metadata"], "resourceVersion": now["metadata"]["resourceVersion"]}}
    cell.request("PUT", api.QUOTA_TREES, "kube-system", "elasticquotatree", body=body)


def queues(cell: Cell) -> dict[str, Obj]:
    """{quota path: Queue}"""
    found = cell.request("GET", api.QUEUES, QUEUE_NAMESPACE)["items"]
    return {each["metadata"]["annotations"][QUOTA_FULLNAME]: each for each in found}


def units(cell: Cell) -> dict[str, Obj]:
    return {each["metadata"]["name"].removesuffix("-ray-qu"): each for each in all_of(cell, api.QUEUE_UNITS)}


def all_of(cell: Cell, resource: api.ApiResource) -> list[Obj]:
    found: list[Obj] = cell.request("GET", resource, "")["items"]
    return found


def run(cell: Cell, scene: Any) -> None:
    play(cell, scene)


def waiting_cell() -> Counted:
    """Jobs are queued and never admitted: nothing but the presenter writes."""
    return Counted(services=("watcher", "quota_accountant", "queue_sorter", "presenter"))


def test_a_leaf_that_comes_back_has_its_queue_again() -> None:
    async def scene(cell: Cell) -> None:
        cell.create(tree("video", "text"))
        await cell.until(lambda: "root/text" in queues(cell), what="the Queue")
        put_tree(cell, tree("video"))
        await cell.until(lambda: "root/text" not in queues(cell), what="the Queue to go with its leaf")
        put_tree(cell, tree("video", "text"))
        await cell.until(lambda: "root/text" in queues(cell), SOON_S, what="the Queue to come back with its leaf")

    run(Counted(), scene)


def test_leaves_taken_out_delay_nothing_else_and_cost_a_request_each() -> None:
    leaves = tuple(f"team-{number}" for number in range(300))

    async def scene(cell: Cell) -> None:
        assert isinstance(cell, Counted)
        cell.create(tree("video", *leaves))
        await cell.until(lambda: len(queues(cell)) == len(leaves) + 2, what="all Queues")
        cell.writes.clear()
        put_tree(cell, tree("video"))
        cell.create(small_job("late", namespace="video"))
        await cell.until(lambda: "late" in units(cell), SOON_S, what="a QueueUnit while Queues are deleted")
        await cell.until(lambda: len(queues(cell)) == 2, what="the Queues to go")
        deleted = {key: count for key, count in cell.writes.items() if key[0] == "delete queues.scheduling.x-k8s.io"}
        assert deleted == {("delete queues.scheduling.x-k8s.io", 200): len(leaves)}

    run(waiting_cell(), scene)


def test_the_units_of_a_renamed_leaf_name_its_queue() -> None:
    """Of jobs that wait, run, and are over."""

    def phases(cell: Cell) -> set[str]:
        return {unit["status"]["phase"] for unit in units(cell).values()}

    async def scene(cell: Cell) -> None:
        cell.create(tree("video", "text"))
        cell.create(small_job("over", namespace="video"))
        await cell.until(lambda: bool(phases(cell) - {"Enqueued", "Dequeued", "Running"}), what="a job to end")
        for name in ("runs", "waits"):
            cell.create(small_job(name, namespace="video", cpu="16", runtime="600s"))
        await cell.until(lambda: phases(cell) >= {"Running", "Enqueued"}, what="one to run and one to wait")
        children = (node("renamed", {}, ROOM, ("video",)), node("text", {}, ROOM, ("text",)))
        put_tree(cell, quota_tree(node("root", ROOM, ROOM, children=children)))

        def right() -> bool:
            there = {path: queue["metadata"]["name"] for path, queue in queues(cell).items()}
            return {unit["spec"]["queue"] for unit in units(cell).values()} == {there.get("root/renamed")}

        await cell.until(right, SOON_S, what="each QueueUnit to name the Queue")

    run(Counted(), scene)


def test_foreign_edits_heal_with_one_request_each() -> None:
    async def scene(cell: Cell) -> None:
        assert isinstance(cell, Counted)
        cell.create(tree("video", "text"))
        for number in range(3):
            cell.create(small_job(f"job-{number}", namespace="video", cpu="30"))
        quiet = Quiet(cell)
        await cell.until(quiet, what="everything to be shown")
        right = shown(cell)
        assert len(units(cell)) == 3
        path, queue = next((path, each) for path, each in queues(cell).items() if path == "root/video")
        name = queue["metadata"]["name"]
        edits: list[tuple[str, Obj]] = [
            ("a Queue's status", {"status": {"waiting": 7}}),
            ("a Queue's status again", {"status": {"waiting": 8}}),
        ]
        for what, body in edits:
            cell.writes.clear()
            cell.request("PATCH", api.QUEUES, QUEUE_NAMESPACE, name, body=body, content_type=MERGE_PATCH)
            await cell.until(lambda: shown(cell) == right, SOON_S, what=what)
            await cell.until(Quiet(cell), what="rest")
            assert cell.writes.total() == 1, (what, cell.writes)
        for what, body in (
            ("a phase", {"status": {"phase": "Running"}}),
            ("a message", {"status": {"message": "hello"}}),
            ("its queue", {"spec": {"queue": "other"}}),
        ):
            cell.writes.clear()
            cell.request("PATCH", api.QUEUE_UNITS, "video", "job-1-ray-qu", body=body, content_type=MERGE_PATCH)
            await cell.until(lambda: shown(cell) == right, SOON_S, what=what)
            await cell.until(Quiet(cell), what="rest")
            assert cell.writes.total() == 1, (what, cell.writes)
        cell.writes.clear()
        cell.request("DELETE", api.QUEUE_UNITS, "video", "job-2-ray-qu")
        cell.request("DELETE", api.QUEUES, QUEUE_NAMESPACE, name)
        await cell.until(lambda: shown(cell) == right, SOON_S, what="what was deleted")
        await cell.until(Quiet(cell), what="rest")
        assert sum(count for (write, _), count in cell.writes.items() if "events" not in write) == 2, cell.writes
        cell.writes.clear()
        put_tree(cell, tree("video", "text"))
        await cell.until(lambda: shown(cell) == right, SOON_S, what="the status of a replaced tree")
        await cell.until(Quiet(cell), what="rest")
        assert cell.writes.total() == 1, cell.writes
        assert path in queues(cell)

    run(waiting_cell(), scene)


def test_the_place_of_a_job_is_written_again() -> None:
    async def scene(cell: Cell) -> None:
        cell.create(tree("video"))
        cell.create(small_job("first", namespace="video", cpu="30"))

        def stamp() -> str:
            found = cell.request("GET", api.RAYJOBS, "video", "first")["metadata"].get("annotations", {})
            return str(found.get("muster.dev/queued-at", ""))

        await cell.until(lambda: bool(stamp()), what="the stamp")
        before = stamp()
        bare = {"metadata": {"annotations": {"muster.dev/queued-at": None, ENQUEUE_STAMPS[0]: None}}}
        cell.request("PATCH", api.RAYJOBS, "video", "first", body=bare, content_type=MERGE_PATCH)
        await cell.until(lambda: stamp() == before, SOON_S, what="the same stamp again")

    run(waiting_cell(), scene)


class Quiet:
    """A condition: nothing was written for ten seconds."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._seen = (-1, 0)

    def __call__(self) -> bool:
        assert isinstance(self._cell, Counted)
        writes, now = self._cell.writes.total(), self._cell.clock.now()
        if writes != self._seen[0]:
            self._seen = (writes, now)
        return now - self._seen[1] > 10_000


def shown(cell: Cell) -> str:
    """All that the presenter keeps, without times, versions and fingerprints."""
    found: Obj = {"units": {}, "queues": {}}
    for name, unit in units(cell).items():
        status = {key: value for key, value in unit["status"].items() if key != "lastUpdateTime"}
        found["units"][name] = (unit["spec"], status)
    for path, queue in queues(cell).items():
        found["queues"][path] = queue.get("status")
    trees = all_of(cell, api.QUOTA_TREES)
    found["tree"] = trees[0].get("status")
    return json.dumps(found, sort_keys=True)


# --- PodGroups of KAI Scheduler ---------------------------------------------------------------------------------------


def in_kai(name: str, **changes: Any) -> Obj:
    job = small_job(name, namespace="ns", submissionMode="HTTPMode", **changes)
    job["metadata"]["labels"] = {KAI_QUEUE: "a"}
    return job


def pod_groups(cell: Cell) -> dict[str, Obj]:
    return {each["metadata"]["ownerReferences"][0]["name"]: each for each in all_of(cell, api.KAI_POD_GROUPS)}


def of_groups(cell: Counted) -> dict[tuple[str, int], int]:
    return {key: count for key, count in cell.writes.items() if "podgroups.scheduling.run.ai" in key[0]}


def test_a_change_of_a_kai_pod_group_is_one_request() -> None:
    """One more for the status of a new one, which the server keeps apart. None for what an earlier process wrote."""
    jobs = 12

    async def scene(cell: Cell) -> None:
        assert isinstance(cell, Counted)
        cell.request("POST", api.KAI_QUEUES, "", body=kai_queue("a", 10))
        for number in range(jobs):
            cell.create(in_kai(f"job-{number}", cpu="30", replicas=1))
        await cell.until(lambda: len(pod_groups(cell)) == jobs, what="the PodGroups")
        await cell.until(Quiet(cell), what="rest")
        group = "podgroups.scheduling.run.ai"
        made = {(f"create {group}", 201): jobs, (f"patch {group}/status", 200): jobs}
        assert of_groups(cell) == made
        before = groups_shown(cell)
        status: Obj = {"status": {"schedulingConditions": [], "resourcesStatus": {"requested": {"cpu": "7"}}}}
        changes: list[tuple[str, Obj, str]] = [
            ("job-3", {"metadata": {"labels": {KAI_QUEUE: "elsewhere"}}}, f"patch {group}"),
            ("job-3", {"spec": {"minMember": 7}}, f"patch {group}"),
            ("job-4", status, f"patch {group}/status"),
        ]
        for name, body, healed in changes:
            cell.writes.clear()
            path = api.KAI_POD_GROUPS.path(
                "ns", pod_groups(cell)[name]["metadata"]["name"], "status" if "status" in body else ""
            )
            answer = cell.cluster.server.handle("PATCH", path, body=json.dumps(body).encode(), content_type=MERGE_PATCH)
            assert answer.ok, answer.body
            assert groups_shown(cell) != before
            await cell.until(lambda: groups_shown(cell) == before, SOON_S, what=str(body))
            await cell.until(Quiet(cell), what="rest")
            assert of_groups(cell) == {(healed, 200): 1}, body
        cell.writes.clear()
        cell.request("DELETE", api.KAI_POD_GROUPS, "ns", pod_groups(cell)["job-5"]["metadata"]["name"])
        await cell.until(lambda: groups_shown(cell) == before, SOON_S, what="a PodGroup that was deleted")
        assert of_groups(cell) == {(f"create {group}", 201): 1, (f"patch {group}/status", 200): 1}
        cell.writes.clear()
        cell.processes["presenter"].kill()
        await cell.until(lambda: cell.starts["presenter"] == 2, what="another presenter")
        await cell.until(Quiet(cell), what="rest")
        assert of_groups(cell) == {}

    run(waiting_cell(), scene)


def test_what_is_shown_for_minutes_is_compared_again() -> None:
    """Pod groups are compared with the gang or the workload that they show, while other work goes on."""

    async def scene(cell: Cell) -> None:
        cell.request("POST", api.KAI_QUEUES, "", body=kai_queue("a", 10))
        cell.create(in_kai("job", cpu="30", replicas=1))
        for index in range(3):
            cell.request("POST", api.PODS, "default", body=member("gang", index))
        await cell.until(lambda: bool(pod_groups(cell)), what="a PodGroup of KAI")
        await cell.until(lambda: bool(cell.request("GET", SHOWN, "default")["items"]), what="a PodGroup of the gang")
        for number in range(20):
            await asyncio.sleep(UNSEEN_S / 8)
            cell.create(small_job(f"other-{number}", namespace="ns"))
        assert cell.starts["presenter"] == 1

    run(Counted(), scene)


def groups_shown(cell: Cell) -> str:
    found = {}
    for name, group in pod_groups(cell).items():
        status = json.loads(json.dumps(group["status"]))
        for condition in status["schedulingConditions"]:
            del condition["lastTransitionTime"]
        found[name] = (group["metadata"]["labels"], group["spec"], status)
    return json.dumps(found, sort_keys=True)


# --- free text --------------------------------------------------------------------------------------------------------


def test_every_leaf_has_a_queue_whatever_its_name() -> None:
    """A generated name has a prefix of its own, which may end in a dash and in no dot."""
    named = ("Team A", "team_b", "UPPER", "\u5de5\u4eba", "x" * 100, "-dash-", "a.b", 'q"uote', "dots...", ".", "v1._")

    async def scene(cell: Cell) -> None:
        children = tuple(node(name, {}, ROOM, (f"ns-{at}",)) for at, name in enumerate(named))
        cell.create(quota_tree(node("root", ROOM, ROOM, children=children)))
        wanted = {"root", *(f"root/{name}" for name in named)}
        await cell.until(lambda: queues(cell).keys() == wanted, SOON_S, what="a Queue for each leaf")

    run(waiting_cell(), scene)


def test_free_text_is_never_a_label() -> None:
    """Users write times, and labels of pod templates, as they like: the job is shown all the same."""
    texts = ("1 h", "an hour or so", "ä", "x" * 200, "-", "1h", "_a_", "a/b", "{}")

    async def scene(cell: Cell) -> None:
        cell.create(tree("video"))
        cell.request("POST", api.KAI_QUEUES, "", body=kai_queue("a", 10))
        for number, text in enumerate(texts):
            job = small_job(f"quota-{number}", namespace="video", cpu="30")
            job["metadata"]["annotations"] |= dict.fromkeys(TIMES, text)
            cell.create(job)
            job = in_kai(f"kai-{number}", cpu="30")
            job["metadata"]["annotations"] |= dict.fromkeys(TIMES, text)
            cell.create(job)
            job = small_job(f"pods-{number}", namespace="ns", submissionMode="HTTPMode", cpu="30")
            head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
            head.setdefault("metadata", {})["labels"] = {KAI_QUEUE: text}
            cell.create(job)
        names = {f"{kind}-{number}" for kind in ("quota", "kai") for number in range(len(texts))}
        await cell.until(lambda: units(cell).keys() >= names, what="all QueueUnits")
        for name, unit in units(cell).items():
            assert all(map(is_label_value, unit["metadata"].get("labels", {}).values())), (name, unit["metadata"])
        groups = {f"{kind}-{number}" for kind in ("pods", "kai") for number in range(len(texts))}
        await cell.until(lambda: pod_groups(cell).keys() >= groups, what="all PodGroups")
        for name, group in pod_groups(cell).items():
            assert all(map(is_label_value, group["metadata"].get("labels", {}).values())), (name, group["metadata"])

    run(waiting_cell(), scene)


def test_the_parts_of_a_pod_group_have_names_of_their_own() -> None:
    """Worker groups are named freely: KAI Scheduler takes small letters, digits and dashes, and no name twice."""
    named = ("A-B", "a-b", "a b", "GPU #1", "\u5de5\u4eba", "\u4eba\u5de5", "headgroup", "g" * 90 + "1", "g" * 90 + "2")

    async def scene(cell: Cell) -> None:
        cell.request("POST", api.KAI_QUEUES, "", body=kai_queue("a", 10))
        job = in_kai("named", cpu="1")
        spec = job["spec"]["rayClusterSpec"]
        spec["workerGroupSpecs"] = [{**spec["workerGroupSpecs"][0], "groupName": name} for name in named]
        cell.create(job)
        await cell.until(lambda: "named" in pod_groups(cell), what="the PodGroup")
        parts = [each["name"] for each in pod_groups(cell)["named"]["spec"]["subGroups"]]
        assert len({*parts}) == len(named) + 1 and parts[:3] == ["headgroup", "a-b", "a-b-2"], parts
        assert all(re.fullmatch("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", part) for part in parts), parts

    run(waiting_cell(), scene)


def test_settings_that_cannot_be_read_are_told() -> None:
    async def scene(cell: Cell) -> None:
        cell.create(tree("video"))
        wrong = {"muster.dev/run-time": "3600", "muster.dev/reclaim-grace": "5", "muster.dev/checkpointed-at": "noon"}
        cell.create(small_job("odd", namespace="video", cpu="30", annotations=wrong))

        def messages() -> list[str]:
            events = [event for event in all_of(cell, api.EVENTS) if event["reason"] == "SettingIgnored"]
            return [event["message"] for event in events if event["involvedObject"]["name"] == "odd"]

        await cell.until(lambda: bool(messages()), what="an Event about the settings")
        assert all(f"annotation {key}: '{text}' is not a" in messages()[0] for key, text in wrong.items())

    run(waiting_cell(), scene)
