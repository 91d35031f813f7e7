"""Files that commands read: manifests, run files, samples, and exported logs that are damaged."""

import fcntl
import gzip
import os
import stat
import tempfile
from pathlib import Path

import msgspec
import pytest

from kit.documents import manifest
from kit.facts import t0
from kit.scenario import Play
from kit.story import quota_tree
from muster.core.reading.quotatree import read_quota_tree
from muster.runtime.logkeeping.logfile import write_log
from muster_cli import exits, instances, samples
from muster_cli.exits import CliError
from muster_cli.instances import Instance, Registration
from muster_cli.main import run
from muster_cli.manifests import read_manifests

# --- exported logs ------------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Path:
    scene = Play()
    for line in ("tree", "synced", "job two", "job one"):
        scene.line(line)
        scene.settle()
    path = tmp_path / "log.jsonl"
    write_log(path, scene.bench.log)
    return path


COMMANDS = (["replay", "--log"], ["check", "--log"], ["why", "video/one", "--log"], ["log", "verify", "--log"])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_whole_file_is_read(command: list[str], log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, str(log)]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("damage", ["cut", "garbage", "hole", "empty", "missing", "gz", "folder", "unknown"])
def test_a_damaged_one_is_said_with_its_line(
    command: list[str], damage: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    code, words = exits.FAILED, ""
    match damage:
        case "cut":
            log.write_bytes(b"".join(lines)[:-20])
            words = f"line {len(lines)} is not a commit of an exported log"
        case "garbage":
            log.write_bytes(b"".join([*lines[:3], b"hello\n", *lines[4:]]))
            words = "line 4 is not a commit of an exported log"
        case "hole":
            log.write_bytes(b"".join([*lines[:3], *lines[4:]]))
            words = "line 4: sequence 5 follows 3; commits are missing"
        case "unknown":
            log.write_bytes(
                b"".join([*lines[:2], lines[2].replace(b'"leader_started"', b'"from_the_future"'), *lines[3:]])
            )
            words = "line 3: unknown event type from_the_future: this build is older than the log"
        case "empty":
            log.write_bytes(b"")
            words = "holds no commit"
        case "missing":
            log.unlink()
            code, words = exits.NOT_FOUND, "there is no such file"
        case "gz":
            log = log.with_suffix(".jsonl.gz")
            log.write_bytes(gzip.compress(b"".join(lines))[:-30])
            words = "is cut off or damaged after line "
        case "folder":
            log = log.parent
            words = "it is no file"
    if damage == "empty" and command[0] in ("why", "log"):
        return
    assert run([*command, str(log)]) == code
    said = capsys.readouterr()
    assert words in said.err
    assert "Traceback" not in said.err


def test_a_log_that_does_not_begin_at_its_beginning_is_not_judged(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[3:]))
    for command in COMMANDS[:2]:
        assert run([*command, str(log)]) == exits.FAILED
        assert "begins at sequence 4" in capsys.readouterr().err
    assert run(["log", "verify", "--log", str(log)]) == exits.VIOLATED


def test_a_changed_decision_diverges(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = log.read_bytes()
    assert b'"reason":"insufficient_quota"' in text
    log.write_bytes(text.replace(b'"asked":12000,', b'"asked":13000,'))
    assert run(["replay", "--log", str(log)]) == exits.VIOLATED
    said = capsys.readouterr().out
    assert "First divergence: stage quota_accountant" in said
    assert "differs in  short.asked" in said
    assert said.splitlines()[-1].endswith("commits, 1 divergent")
    assert run(["replay", "--log", str(log), "--stage", "queue_sorter"]) == exits.OK


def test_a_broken_invariant_is_a_violation(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines).replace(b'"epoch":', b'"epoch":9', 1))
    assert run(["check", "--log", str(log)]) == exits.VIOLATED
    assert "I13" in capsys.readouterr().out
    assert run(["check", "--log", str(log), "-o", "json"]) == exits.VIOLATED


# --- manifests ----------------------------------------------------------------------------------------------------


def test_several_documents_and_lists() -> None:
    text = """
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: n}
---
---
apiVersion: v1
kind: List
items:
- {apiVersion: ray.io/v1, kind: RayJob, metadata: {generateName: b-}}
- {apiVersion: v1, kind: Namespace, metadata: {name: c}}
"""
    assert [str(found) for found in read_manifests(text, "f")] == ["ConfigMap n/a", "RayJob b-*", "Namespace c"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "f is not YAML"),
        ("", "f holds no object"),
        ("- 1", "f, document 1 is no object but a list"),
        ("kind: X", "has no apiVersion or no kind"),
        ("apiVersion: v1\nkind: X\nmetadata: {}", "has neither metadata.name nor metadata.generateName"),
        ("apiVersion: v1\nkind: X\nmetadata: text", "has neither metadata.name nor metadata.generateName"),
    ],
)
def test_what_is_no_object_is_said(text: str, words: str) -> None:
    with pytest.raises(CliError, match=words) as found:
        read_manifests(text, "f")
    assert found.value.code == exits.USAGE


def test_the_samples_are_the_documents_manifests_and_the_tree_t0() -> None:
    assert samples.manifest(samples.RAYJOB) == manifest("rayjob-video")
    assert samples.manifest(samples.CONFIG_MAP) == manifest("configmap-video")
    tree = samples.manifest(samples.QUOTA_TREE)
    tree["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    assert read_quota_tree(msgspec.json.encode(tree)).root == t0()
    assert tree["metadata"]["namespace"] == quota_tree()["metadata"]["namespace"]


# --- run files ----------------------------------------------------------------------------------------------------


def instance(number: int, **changes: object) -> Instance:
    fields: dict[str, object] = {
        "pid": number,
        "started": number,
        "url": f"nats://{number}",
        "cell": "main",
        "home": "/nowhere",
        "temporary": False,
        "acting": True,
        "simulated": True,
    }
    return Instance(**(fields | changes))  # type: ignore[arg-type]


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "muster"


def test_the_newest_comes_first_and_nothing_is_left(where: Path) -> None:
    assert instances.running() == []
    assert not where.exists()
    one, two = Registration(), Registration()
    one.publish(instance(1))
    two.publish(instance(2))
    assert [found.started for found in instances.running()] == [2, 1]
    assert stat.S_IMODE(where.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in where.iterdir())
    two.close()
    assert [found.started for found in instances.running()] == [1]
    one.close()
    one.close()
    assert not where.exists()


def test_what_a_killed_one_left_is_swept_up_and_no_more(where: Path) -> None:
    kept = Path(tempfile.mkdtemp(prefix="somebody-elses-"))
    mine = Path(tempfile.mkdtemp(prefix=instances.TEMPORARY))
    for number, home in ((1, kept), (2, mine)):
        left = Registration()
        left.publish(instance(number, home=str(home), temporary=True))
        assert left._held is not None
        os.close(left._held[1])  # As the end of its process does.
    assert instances.running() == []
    assert not mine.exists()
    assert kept.exists()
    kept.rmdir()
    assert not where.exists()


def test_a_file_that_cannot_be_read_is_passed_over(where: Path) -> None:
    living = Registration()
    living.publish(instance(1))
    with (where / "9-9.json").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("{")
        file.flush()
        assert [found.started for found in instances.running()] == [1]
    living.close()


def test_a_directory_that_is_not_ours_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "muster").symlink_to("/tmp")
    with pytest.raises(CliError, match="belongs to another user"):
        instances.directory()
    open_to_all = tmp_path / "other"
    open_to_all.mkdir()
    (open_to_all / "muster").mkdir(mode=0o777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(open_to_all))
    assert stat.S_IMODE(instances.directory().stat().st_mode) == 0o700
