"""The public contract: what is in proto-schemas/ is what is published, and what was published stays true."""

import copy
import json
from functools import cache
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml
from jsonschema import Draft202012Validator

from kit import facts
from kit.bench import Bench
from kit.compose import REPOSITORY
from muster.events.public import PUBLIC_TYPES, ce_type_of
from muster.events.registry import encode
from muster.told.views.publication import public_event
from muster_tools.schemas import Schema, breaking, files, main, recorded, sample_of, schemas

FOLDER = REPOSITORY / "proto-schemas"
SAMPLES = sorted((FOLDER / "samples").glob("*.json"))
CHANGES = (FOLDER / "CHANGES.md").read_text()


@cache
def validator(tag: str) -> Draft202012Validator:
    schema = json.loads((FOLDER / "v1" / f"{tag}.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def tag_of(sample: Any) -> str:
    return sample.name.partition(".")[0]


def test_the_files_are_what_the_code_says() -> None:
    stale = [str(path) for path, text in files(FOLDER).items() if not path.exists() or path.read_text() != text]
    assert not stale, "run `make schemas`"


def test_no_file_is_left_of_an_event_that_is_gone() -> None:
    assert {path.name for path in (FOLDER / "v1").iterdir()} == {f"{tag}.schema.json" for tag in PUBLIC_TYPES}
    assert {tag_of(path) for path in SAMPLES} == set(PUBLIC_TYPES)


def test_nothing_that_was_published_is_changed() -> None:
    assert recorded(FOLDER)
    assert breaking(recorded(FOLDER), present()) == []


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_of_any_time_is_valid_and_can_be_read(path: Any) -> None:
    body = json.loads(path.read_text())
    validator(tag_of(path)).validate(body)
    event = msgspec.convert(body, PUBLIC_TYPES[tag_of(path)])
    assert json.loads(encode(event)) == body


@pytest.mark.parametrize("tag", PUBLIC_TYPES)
def test_a_schema_refuses_what_lacks_a_field(tag: str) -> None:
    body = json.loads(sample_of(tag))
    for name in validator(tag).schema["required"]:
        with pytest.raises(jsonschema.ValidationError, match=name):
            validator(tag).validate({key: value for key, value in body.items() if key != name})


@pytest.mark.parametrize("tag", PUBLIC_TYPES)
def test_every_event_is_told_of_in_the_changes(tag: str) -> None:
    assert f"`{tag}`" in CHANGES


def test_what_the_stages_decide_is_published_as_the_schemas_say() -> None:
    bench = Bench()
    leaf = facts.node("leaf", {"cpu": 4}, {"cpu": 4}, ("team",))
    bench.facts(facts.tree(facts.node("root", {"cpu": 4}, {"cpu": 4}, children=(leaf,))))
    bench.synced()
    for name, cpu in (("first", 3), ("second", 3), ("huge", 9)):
        bench.facts(facts.seen(facts.job(name, "team", cpu=cpu)))
        bench.settle()
    bench.facts(facts.gone("first", "team"))
    bench.settle()
    told = set()
    for stored in bench.log:
        for index, event in enumerate(stored.commit.events):
            found = public_event("main", 1, stored.seq, index, stored.commit.at, event)
            if found is not None:
                tag = str(type(found).__struct_config__.tag)
                validator(tag).validate(json.loads(encode(found)))
                told.add(tag)
    assert told >= {"quota_tree_accepted", "workload_queued", "workload_denied", "workload_admitted"}


present = cache(schemas)


def changed(edit: Any) -> list[str]:
    old = present()
    new = copy.deepcopy(old)
    edit(new)
    return breaking(old, new)


def with_field(new: dict[str, Schema], required: bool) -> None:
    event = new["workload_admitted"]
    event["properties"]["node"] = {"type": "string"}
    if required:
        event["required"].append("node")


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda new: new.pop("workload_denied"), "workload_denied is gone"),
        (lambda new: new["workload_denied"]["properties"].pop("limit"), "workload_denied.limit is gone"),
        (lambda new: new["workload_denied"]["required"].remove("used"), "workload_denied.used was always there"),
        (
            lambda new: new["workload_queued"]["properties"].update(priority={"type": "string"}),
            "workload_queued.priority: type was integer and is string",
        ),
        (
            lambda new: new["workload_queued"]["$defs"]["PublicWorkload"]["properties"].pop("uid"),
            "workload_queued.workload.uid is gone",
        ),
        (
            lambda new: new["workload_queued"]["properties"]["request"].update(additionalProperties={"type": "number"}),
            "workload_queued.request.additionalProperties: type was string and is number",
        ),
        (lambda new: with_field(new, required=True), "workload_admitted.node is required now"),
    ],
)
def test_what_would_break_a_reader_is_said(edit: Any, words: str) -> None:
    assert any(line.startswith(words) for line in changed(edit)), changed(edit)


def test_additions_break_nobody() -> None:
    assert changed(lambda new: with_field(new, required=False)) == []
    assert changed(lambda new: new.update(workload_moved=new["workload_admitted"])) == []


def test_the_command_checks_without_writing(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--check"]) == 1
    assert list(tmp_path.iterdir()) == []
    assert main([]) == 0
    assert main(["--check"]) == 0


def test_the_asyncapi_document_fits_together() -> None:
    document = yaml.safe_load((FOLDER / "asyncapi.yaml").read_text())
    assert document["asyncapi"] == "3.0.0"
    assert set(document["channels"]) == set(PUBLIC_TYPES)

    def refs(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                yield node["$ref"]
            for value in node.values():
                yield from refs(value)
        elif isinstance(node, list):
            for value in node:
                yield from refs(value)

    for ref in refs(document):
        file, _, pointer = ref.partition("#")
        found = document
        if file:
            assert (FOLDER / file).is_file(), ref
            continue
        for part in pointer.strip("/").split("/"):
            found = found[part]
    for tag, channel in document["channels"].items():
        named = {part.strip("{}") for part in channel["address"].split(".") if part.startswith("{")}
        assert named == set(channel["parameters"])
        assert document["components"]["messages"][tag]["name"] == ce_type_of(PUBLIC_TYPES[tag])


def test_the_names_outsiders_filter_by() -> None:
    assert {tag: ce_type_of(cls) for tag, cls in PUBLIC_TYPES.items()} == {
        "workload_queued": "dev.muster.workload.queued.v1",
        "workload_dequeued": "dev.muster.workload.dequeued.v1",
        "workload_refused": "dev.muster.workload.refused.v1",
        "workload_denied": "dev.muster.workload.denied.v1",
        "workload_admitted": "dev.muster.workload.admitted.v1",
        "workload_adopted": "dev.muster.workload.adopted.v1",
        "workload_resumed": "dev.muster.workload.resumed.v1",
        "workload_not_resumed": "dev.muster.workload.not-resumed.v1",
        "workload_started": "dev.muster.workload.started.v1",
        "workload_suspended": "dev.muster.workload.suspended.v1",
        "workload_finished": "dev.muster.workload.finished.v1",
        "workload_released": "dev.muster.workload.released.v1",
        "quota_tree_accepted": "dev.muster.quota-tree.accepted.v1",
        "quota_tree_rejected": "dev.muster.quota-tree.rejected.v1",
        "quota_tree_removed": "dev.muster.quota-tree.removed.v1",
    } | {tag: ce_type_of(cls) for tag, cls in PUBLIC_TYPES.items() if tag not in recorded(FOLDER)}
