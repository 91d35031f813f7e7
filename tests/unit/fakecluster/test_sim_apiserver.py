"""Properties of the simulated API server that no comparison with a real one shows: sharing, history, watches, order."""

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kit.ray import Object
from muster.fakecluster.apiserver import SimApiServer, StatusError
from muster.fakecluster.apiserver.jsonpatch import json_patch, merge_patch
from muster.fakecluster.apiserver.lists import list_objects
from muster.fakecluster.apiserver.names import Names, derived_suffix, moment, stamp
from muster.fakecluster.apiserver.store import key_of
from muster.model.api import JSON_PATCH, NAMESPACES, QUEUE_UNITS, QUEUES

#: One write: (verb, name, label value).
Write = tuple[str, str, str]

writes = st.lists(
    st.tuples(
        st.sampled_from(["create", "merge", "hold", "release", "delete", "status"]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["x", "y"]),
    ),
    max_size=40,
)


def make() -> SimApiServer:
    server = SimApiServer(lambda: 1_000)
    server.objects.create(NAMESPACES, "", {"metadata": {"name": "ns"}})
    return server


def write(server: SimApiServer, verb: str, name: str, value: str) -> None:
    """Do one write, if the server lets us."""
    objects, unit = server.objects, QUEUE_UNITS
    finalizers = {"hold": ["test.dev/hold"], "release": None}
    try:
        match verb:
            case "create":
                made = {"kind": unit.kind, "metadata": {"name": name, "labels": {"l": value}}}
                objects.create(unit, "ns", made)
            case "merge":
                objects.patch(unit, "ns", name, {"metadata": {"labels": {"l": value}}})
            case "status":
                objects.patch(unit, "ns", name, {"status": {"phase": value}})
            case "delete":
                objects.delete(unit, "ns", name)
            case _:
                objects.patch(unit, "ns", name, {"metadata": {"finalizers": finalizers[verb]}})
    except StatusError:
        return


def selected(server: SimApiServer, query: dict[str, str]) -> dict[str, Object]:
    found = list_objects(server.store, server.store.table(QUEUE_UNITS), "ns", query)["items"]
    return {item["metadata"]["name"]: item for item in found}


class Mirror:
    """A watcher that folds what it is told."""

    def __init__(self, server: SimApiServer, query: dict[str, str]) -> None:
        self.objects: dict[str, Object] = {}
        self.versions: list[int] = []
        server.watch(QUEUE_UNITS.path("ns"), query, self.add)

    def add(self, line: bytes) -> None:
        event = json.loads(line)
        found = event["object"]
        name, version = found["metadata"]["name"], int(found["metadata"]["resourceVersion"])
        known = name in self.objects
        assert {"ADDED": not known, "MODIFIED": known, "DELETED": known}[event["type"]], event
        if event["type"] == "DELETED":
            del self.objects[name]
        else:
            self.objects[name] = found
        self.versions.append(version)


@given(writes, st.sampled_from(["", "l=x", "l!=x", "!l"]))
def test_folding_a_watch_gives_the_list(history: list[Write], selector: str) -> None:
    server = make()
    query = {"labelSelector": selector} if selector else {}
    begin = str(server.store.version)
    live = Mirror(server, {**query, "resourceVersion": begin})
    for step in history:
        write(server, *step)
        assert live.objects == selected(server, query)
    late = Mirror(server, {**query, "resourceVersion": begin})
    assert (late.objects, late.versions) == (live.objects, live.versions)
    assert live.versions == sorted(set(live.versions))


@given(writes)
def test_any_remembered_moment_can_be_listed(history: list[Write]) -> None:
    server = make()
    moments = {server.store.version: selected(server, {})}
    for step in history:
        write(server, *step)
        moments[server.store.version] = selected(server, {})
    for version, expected in moments.items():
        exact = {"resourceVersion": str(version), "resourceVersionMatch": "Exact"}
        assert selected(server, exact) == expected


@given(writes)
def test_what_a_reader_got_never_changes(history: list[Write]) -> None:
    server = make()
    kept: list[tuple[Object, Object]] = []
    for step in history:
        write(server, *step)
        kept += [(found, copy.deepcopy(found)) for found in server.store.table(QUEUE_UNITS).objects.values()]
    for found, then in kept:
        assert found == then


documents: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=10,
)
paths = st.lists(st.sampled_from(["a", "b", "c", "0", "1", "-"]), max_size=3).map(
    lambda keys: "".join(f"/{key}" for key in keys)
)
operations = st.lists(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["add", "remove", "replace", "test", "copy", "move"]),
            "path": paths,
            "from": paths,
            "value": documents,
        }
    ),
    max_size=4,
)


@given(documents, operations)
def test_a_patch_leaves_the_document_as_it_was(document: Any, patch: list[Object]) -> None:
    before = copy.deepcopy(document)
    try:
        json_patch(document, patch)
    except StatusError as err:
        assert err.code == 422
    assert document == before


@given(documents, documents)
def test_a_merge_patch_leaves_the_document_as_it_was(document: Any, patch: Any) -> None:
    before = copy.deepcopy(document)
    once = merge_patch(document, patch)
    assert merge_patch(once, patch) == once
    assert document == before


def test_the_history_is_bounded_and_says_so() -> None:
    server = SimApiServer(lambda: 1_000, history=3, auto_namespaces=True)
    server.objects.create(QUEUE_UNITS, "ns", {"kind": "QueueUnit", "metadata": {"name": "a"}})
    begin = server.store.version
    for value in "uvwxyz":
        write(server, "merge", "a", value)
    lines: list[bytes] = []
    stream = server.watch(QUEUE_UNITS.path(), {"resourceVersion": str(begin)}, lines.append)
    assert stream.failed
    assert json.loads(lines[0])["object"]["code"] == 410
    lines.clear()
    server.watch(QUEUE_UNITS.path(), {"resourceVersion": str(begin + 3)}, lines.append)
    assert len(lines) == 3


def test_a_closed_watch_is_silent() -> None:
    server = make()
    lines: list[bytes] = []
    stream = server.watch(QUEUE_UNITS.path(), {}, lines.append)
    write(server, "create", "a", "x")
    stream.close()
    stream.close()
    write(server, "create", "b", "x")
    assert len(lines) == 1


def test_a_deleted_namespace_takes_everything_with_it() -> None:
    server = make()
    write(server, "create", "a", "x")
    write(server, "hold", "a", "x")
    answer = server.handle("DELETE", NAMESPACES.path(name="ns"))
    assert answer.status == 200
    assert server.store.table(QUEUE_UNITS).objects == {}
    assert server.handle("GET", NAMESPACES.path(name="ns")).status == 404


def test_namespaces_are_made_on_demand_where_that_is_wanted() -> None:
    server = SimApiServer(lambda: 1_000, auto_namespaces=True)
    server.objects.create(QUEUE_UNITS, "new", {"kind": "QueueUnit", "metadata": {"name": "a"}})
    assert server.handle("GET", NAMESPACES.path(name="new")).status == 200


def test_names_depend_on_the_seed_alone() -> None:
    first, again, other = Names(1), Names(1), Names(2)
    made = [(first.suffix(), first.uid()) for _ in range(100)]
    assert made == [(again.suffix(), again.uid()) for _ in range(100)]
    assert made != [(other.suffix(), other.uid()) for _ in range(100)]
    assert len({uid for _, uid in made}) == 100
    assert derived_suffix("a", 1) == derived_suffix("a", 1) != derived_suffix("a", 2)


def test_a_generated_name_does_not_depend_on_what_else_is_created() -> None:
    def named(busy: bool) -> list[str]:
        server = SimApiServer(lambda: 1_000, auto_namespaces=True)
        found = []
        for number in range(3):
            if busy:
                server.objects.create(QUEUES, "ns", {"kind": "Queue", "metadata": {"generateName": f"q{number}-"}})
            body = {"kind": "QueueUnit", "metadata": {"generateName": "unit-"}}
            found.append(server.objects.create(QUEUE_UNITS, "ns", body)["metadata"]["name"])
        return found

    assert named(busy=True) == named(busy=False)
    assert len(set(named(busy=True))) == 3


def test_a_server_that_begins_again_finds_names_that_are_free() -> None:
    server = SimApiServer(lambda: 1_000, auto_namespaces=True)
    body = {"kind": "QueueUnit", "metadata": {"generateName": "unit-"}}
    made = {server.objects.create(QUEUE_UNITS, "ns", body)["metadata"]["name"] for _ in range(20)}
    server.objects._names = Names(0)
    made |= {server.objects.create(QUEUE_UNITS, "ns", body)["metadata"]["name"] for _ in range(20)}
    assert len(made) == 40


def test_time_stamps_are_whole_seconds_both_ways() -> None:
    assert stamp(1_736_472_984_999) == "2025-01-10T01:36:24Z"
    assert moment("2025-01-10T01:36:24Z") == 1_736_472_984_000


def test_a_listener_must_not_write() -> None:
    server = make()
    server.subscribe(lambda change: write(server, "create", "b", "x"), QUEUE_UNITS)
    try:
        server.objects.create(QUEUE_UNITS, "ns", {"kind": "QueueUnit", "metadata": {"name": "a"}})
    except AssertionError as err:
        assert "must do that after its call" in str(err)
    else:
        raise AssertionError("the write went through")


def test_keys_sort_as_the_server_lists() -> None:
    server = SimApiServer(lambda: 1_000, auto_namespaces=True)
    for namespace, name in (("a", "z"), ("a-b", "a"), ("a", "b")):
        server.objects.create(QUEUE_UNITS, namespace, {"kind": "QueueUnit", "metadata": {"name": name}})
    found = list_objects(server.store, server.store.table(QUEUE_UNITS), "", {})["items"]
    assert [key_of(item) for item in found] == ["a-b/a", "a/b", "a/z"]
    answer = server.handle("PATCH", QUEUE_UNITS.path("a", "b"), body=b"[]", content_type=JSON_PATCH)
    assert answer.status == 200
