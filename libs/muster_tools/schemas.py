"""``python -m muster_tools.schemas``: writes the public contract into ``proto-schemas/``.

A JSON Schema for each public event, an AsyncAPI document, samples. Published schemas never change: new events and new
optional fields only. ``--check`` writes nothing and fails when a file is not up to date. ``--record VERSION`` is for a
release: later schemas are compared with the recorded ones.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from muster.events.public import PUBLIC_TYPES, PublicEvent, PublicWorkloadEvent, ce_type_of, schema_address
from muster.events.registry import encode
from muster_tools.attributes import attribute_docs, summary

FOLDER = Path("proto-schemas")
VERSION = "v1"
RECORDED = "recorded.json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

EXAMPLES: dict[str, Any] = {
    "cell": "main",
    "at": "2026-01-02T03:04:05Z",
    "position": {"generation": 1, "sequence": 57, "index": 0},
    "workload": {
        "kind": "RayJob",
        "namespace": "video",
        "name": "rayjob-video-h4x2q",
        "uid": "9f0b7a52-5a0e-4a43-9d5f-0a2f0f6c1e11",
    },
    "attempt": 1,
    "queue": "root/algorithm/video",
    "quota": "root/algorithm/video",
    "request": {"cpu": "12", "memory": "12G"},
    "priority": 100,
    "queued_at": "2026-01-02T03:04:00Z",
    "resource": "cpu",
    "requested": "12",
    "used": "12",
    "limit": "14",
    "outcome": "succeeded",
    "namespace": "kube-system",
    "name": "elasticquotatree",
    "nodes": ["root", "root/algorithm", "root/algorithm/video"],
    "victims": [
        {
            "kind": "RayJob",
            "namespace": "intern-video",
            "name": "trial-7",
            "uid": "1c9d6c0e-0d1f-4c39-8f5b-66a3f7d0b5aa",
        }
    ],
    "violations": ["root/algorithm/video: min cpu 20 is over max cpu 14"],
    "workload_dequeued.reason": "gone",
    "workload_refused.reason": "cannot_suspend",
    "workload_refused.message": "spec.shutdownAfterJobFinishes is false; set it to true to have this RayJob queued",
    "workload_denied.reason": "insufficient_quota",
    "workload_denied.held": "2",
    "workload_denied.claimant": "video/rayjob-video-h4x2q",
    "workload_denied.kept": "1",
    "workload_denied.message": "Insufficient quota(cpu) in quota root/algorithm/video: request 12, max 14, used 12, "
    "held 2 for video/rayjob-video-h4x2q, kept 1 for the guarantees of others",
    "waited_ms": 83_000,
    "started_ms": 4_200,
    "ran_ms": 3_600_000,
    "workload_reclaimed.reason": "guarantee",
    "workload_evicted.reason": "reclaimed",
    "workload_evicted.claimant": "video/rayjob-video-h4x2q",
    "workload_finished.reason": "SUCCEEDED",
    "beyond_grant": {"cpu": "12"},
    "workload_adopted.reason": "already_running",
    "workload_not_resumed.reason": "refused",
    "workload_not_resumed.message": "admission webhook denied the request",
    "workload_released.reason": "finished",
    "cause": "OOMKilled",
    "workload_held_up.cause": "ImagePullBackOff",
    "workload_held_up.message": "Pod train-head-x7: the image reg/x:1 cannot be pulled (ErrImagePull); correct "
    "the name of the image or the pull secret",
    "pod": "train-head-x7",
    "owner": "alice",
    "labels": {"quota.scheduling.alibabacloud.com/name": "video"},
    "node": "node-7",
    "workload_started.nodes": ["node-7", "node-8"],
    "workload_admitted.nodes": ["node-7", "node-8"],
    "borrowed": {"cpu": "4"},
    "promised_by": "2026-01-02T03:30:00Z",
    "workload_claim_ended.reason": "gone",
    "workload_alarm_raised.reason": "no_head",
    "workload_alarm_raised.message": "RayCluster train-x7 has no live head pod: check its pods and its operator",
    "cluster": "train-x7",
    "since": "2026-01-02T03:03:00Z",
}
"""{field, or event.field: a value for samples}"""


def schema_of(cls: type[PublicEvent]) -> Schema:
    """The JSON Schema of one public event. Unknown fields are allowed: later versions add some."""
    (ref,), components = msgspec.json.schema_components([cls], ref_template="#/$defs/{name}")
    name = str(ref["$ref"]).rpartition("/")[2]
    own = components.pop(name)
    _describe(own, cls)
    structs = {struct.__name__: struct for struct in _nested(cls)}
    for other, schema in components.items():
        _describe(schema, structs[other])
    own.pop("title", None)
    tag = str(cls.__struct_config__.tag)
    head = {"$schema": DIALECT, "$id": schema_address(tag), "title": tag}
    return {**head, **own, **({"$defs": dict(sorted(components.items()))} if components else {})}


def _describe(schema: Schema, cls: type) -> None:
    schema["description"] = summary(cls)
    for name, text in attribute_docs(cls).items():
        schema["properties"][name]["description"] = text


def _nested(cls: type) -> Iterator[type]:
    for kind in msgspec.structs.fields(cls):
        if isinstance(kind.type, type) and issubclass(kind.type, msgspec.Struct):
            yield kind.type
            yield from _nested(kind.type)


def schemas() -> dict[str, Schema]:
    """{event: schema}"""
    return {tag: schema_of(cls) for tag, cls in sorted(PUBLIC_TYPES.items())}


# --- what may change ------------------------------------------------------------------------------------------------


def breaking(old: Mapping[str, Schema], new: Mapping[str, Schema]) -> list[str]:
    """The changes that break a reader of the old schemas."""
    lines: list[str] = []
    for tag, schema in old.items():
        if tag in new:
            lines += _changes(tag, schema, new[tag], schema, new[tag])
        else:
            lines.append(f"{tag} is gone")
    return lines


def _changes(where: str, old: Schema, new: Schema, old_root: Schema, new_root: Schema) -> Iterator[str]:
    old, new = _resolved(old, old_root), _resolved(new, new_root)
    for key in ("type", "enum", "const", "anyOf", "format"):
        if old.get(key) != new.get(key):
            yield f"{where}: {key} was {old.get(key)} and is {new.get(key)}"
    before, now = set(old.get("required", ())), set(new.get("required", ()))
    yield from (f"{where}.{name} was always there and need not be now" for name in sorted(before - now))
    yield from (f"{where}.{name} is required now, and is not in the published schema" for name in sorted(now - before))
    after = new.get("properties", {})
    for name, schema in old.get("properties", {}).items():
        if name in after:
            yield from _changes(f"{where}.{name}", schema, after[name], old_root, new_root)
        else:
            yield f"{where}.{name} is gone"
    for key in ("items", "additionalProperties"):
        if isinstance(old.get(key), dict):
            yield from _changes(f"{where}.{key}", old[key], new.get(key) or {}, old_root, new_root)


def _resolved(schema: Schema, root: Schema) -> Schema:
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    return dict(root["$defs"][name]) if name else schema


# --- samples --------------------------------------------------------------------------------------------------------


def sample_of(tag: str) -> bytes:
    """One message as published, with every field."""
    cls = PUBLIC_TYPES[tag]
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(cls):
        name = f"{tag}.{field.name}" if f"{tag}.{field.name}" in EXAMPLES else field.name
        if name not in EXAMPLES:
            raise LookupError(f"{tag}.{field.name} has no example; add one to muster_tools/schemas.py")
        values[field.name] = EXAMPLES[name]
    return encode(msgspec.convert({"type": tag, **values}, cls))


def _samples(folder: Path) -> Iterator[tuple[Path, str]]:
    """The missing samples: the first sample of an event, and one more after a new field. A sample never changes."""
    for tag in sorted(PUBLIC_TYPES):
        wanted = json.loads(sample_of(tag))
        number = 1
        while (path := folder / "samples" / f"{tag}.{number}.json").exists():
            if set(json.loads(path.read_text())) >= set(wanted):
                break
            number += 1
        else:
            yield path, _json(wanted)


# --- files ----------------------------------------------------------------------------------------------------------


def asyncapi() -> str:
    """The AsyncAPI document: a channel, a message and an operation per event."""
    channels: Schema = {}
    operations: Schema = {}
    messages: Schema = {}
    for tag, cls in sorted(PUBLIC_TYPES.items()):
        about = summary(cls)
        of_workload = issubclass(cls, PublicWorkloadEvent)
        channels[tag] = {
            "address": f"muster.pub.{VERSION}.{{cell}}.{tag}.{{namespace}}.{{name}}",
            "description": about,
            "parameters": {
                "cell": {"description": "Name of the cell: one log, one set of quota trees.", "default": "main"},
                "namespace": {"description": "Of the " + ("workload" if of_workload else "quota tree") + ", escaped."},
                "name": {"description": "Of the " + ("workload" if of_workload else "quota tree") + ", escaped."},
            },
            "messages": {tag: {"$ref": f"#/components/messages/{tag}"}},
        }
        operations[f"send_{tag}"] = {
            "action": "send",
            "summary": about,
            "channel": {"$ref": f"#/channels/{tag}"},
            "messages": [{"$ref": f"#/channels/{tag}/messages/{tag}"}],
        }
        messages[tag] = {
            "name": ce_type_of(cls),
            "title": tag,
            "summary": about,
            "contentType": "application/json",
            "traits": [{"$ref": "#/components/messageTraits/cloudEvent"}],
            "payload": {
                "schemaFormat": "application/schema+json;version=draft-2020-12",
                "schema": {"$ref": f"./{VERSION}/{tag}.schema.json"},
            },
            "examples": [{"payload": json.loads(sample_of(tag))}],
        }
    document = {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Muster public events",
            "version": VERSION.removeprefix("v") + ".0.0",
            "description": (
                "What happens to workloads and quota trees, one JSON object per message on the JetStream stream "
                "MUSTER_PUB, in the order of the log. Each arrives at least once; `ce-id` tells repetitions. Events "
                "and optional fields are added, nothing is changed or removed. In a subject every character of a "
                "namespace or name but letters, digits, - and _ is written =XX, its bytes in hexadecimal."
            ),
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "messageTraits": {"cloudEvent": {"headers": _headers()}}},
    }
    notice = "# Written by `make schemas`: change muster/events/public.py instead.\n"
    return notice + yaml.safe_dump(document, sort_keys=False, width=110, allow_unicode=True)


def _headers() -> Schema:
    descriptions = {
        "ce-specversion": "Version of CloudEvents.",
        "ce-id": "CELL-GENERATION-SEQUENCE-INDEX: unique for ever, the same in every repetition.",
        "ce-source": "/muster/CELL",
        "ce-type": "dev.muster.NOUN.VERB.v1",
        "ce-time": "Log time, RFC 3339.",
        "ce-subject": "NAMESPACE/NAME",
        "ce-datacontenttype": "application/json",
        "ce-dataschema": "The $id of the schema of the body.",
        "traceparent": "W3C trace context of the workload; absent when traces are off.",
    }
    properties: Schema = {name: {"type": "string", "description": text} for name, text in descriptions.items()}
    properties["ce-specversion"]["const"] = "1.0"
    required = [name for name in descriptions if name not in ("traceparent", "ce-dataschema")]
    return {"type": "object", "required": required, "properties": properties}


def files(folder: Path) -> dict[Path, str]:
    """Every desired file; of samples only the missing ones."""
    texts = {folder / VERSION / f"{tag}.schema.json": _json(schema) for tag, schema in schemas().items()}
    texts[folder / "asyncapi.yaml"] = asyncapi()
    texts |= dict(_samples(folder))
    return texts


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def recorded(folder: Path) -> dict[str, Schema]:
    """The schemas of the last recorded version; empty before the first."""
    path = folder / RECORDED
    return dict(json.loads(path.read_text())["schemas"]) if path.exists() else {}


def main(arguments: list[str]) -> int:
    broken = breaking(recorded(FOLDER), schemas())
    if broken:
        print("what was published is never changed; add an event or an optional field instead:", file=sys.stderr)
        print("\n".join(f"  {line}" for line in broken), file=sys.stderr)
        return 1
    wanted = files(FOLDER)
    if "--record" in arguments:
        version = arguments[arguments.index("--record") + 1]
        wanted[FOLDER / RECORDED] = _json({"version": version, "schemas": schemas()})
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in stale:
            print(f"{path} is not up to date; run `make schemas`", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path])
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
