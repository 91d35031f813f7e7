"""Archives: the same log is the same files however it was interrupted; damage is named with its file."""

import hashlib
import itertools
import json
import os
from pathlib import Path

import pytest

from kit.scenario import Play
from muster.events.envelope import encode_commit
from muster.runtime.logkeeping.archive import (
    MANIFEST,
    ArchiveError,
    ArchiveWriter,
    is_archive,
    read_archive,
    read_lines,
    read_manifest,
)
from muster.runtime.logkeeping.logfile import read_log


@pytest.fixture(scope="module")
def log():
    scene = Play()
    for line in ("tree", "synced", "job two", "job one", "resumed two", "runs two"):
        scene.line(line)
        scene.settle()
    return scene.bench.log


def archive(folder: Path, log, *, upto: int | None = None, size: int = 4) -> ArchiveWriter:
    with ArchiveWriter(folder, "main", "bench", 1, commits=size) as writer:
        for stored in log[writer.after : upto]:
            writer.write(stored.seq, encode_commit(stored.commit), f"trace-{stored.seq}")
    return writer


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_archived_is_read_again(tmp_path, log):
    archive(tmp_path / "a", log)
    found = list(read_archive(tmp_path / "a"))
    assert [(each.seq, each.commit) for each in found] == [(each.seq, each.commit) for each in log]
    assert found[2].trace == "trace-3"
    assert [each.commit for each in read_log(tmp_path / "a")] == [each.commit for each in log]
    assert [bytes(each.commit) for each in read_lines(tmp_path / "a")] == [encode_commit(each.commit) for each in log]


def test_the_manifest_says_what_each_segment_holds(tmp_path, log):
    archive(tmp_path, log)
    told = json.loads((tmp_path / MANIFEST).read_text())
    assert (told["log_id"], told["generation"], told["sealed"]) == ("bench", 1, False)
    assert [(each["first"], each["last"]) for each in told["segments"]] == [
        (first, min(first + 3, len(log))) for first in range(1, len(log) + 1, 4)
    ]
    for each in told["segments"]:
        body = (tmp_path / each["file"]).read_bytes()
        assert (each["sha256"], each["size"]) == (hashlib.sha256(body).hexdigest(), len(body))
        assert each["first_at"] == log[each["first"] - 1].commit.at


def test_an_archive_gone_on_with_at_any_point_is_the_same_files(tmp_path, log, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # Waiting for the disk, a thousand times, changes no byte.
    archive(tmp_path / "whole", log)
    whole = files(tmp_path / "whole")
    for stop, again in itertools.combinations(range(1, len(log)), 2):
        folder = tmp_path / f"{stop}-{again}"
        for upto in (stop, again, None):
            archive(folder, log, upto=upto)
        assert files(folder) == whole, (stop, again)


def test_one_that_breaks_off_leaves_what_was_whole(tmp_path, log):
    archive(tmp_path, log, upto=6)
    before = files(tmp_path)
    with pytest.raises(ZeroDivisionError), ArchiveWriter(tmp_path, "main", "bench", 1) as writer:
        assert writer.after == 4, "the short segment is written again"
        for stored in log[4:7]:
            writer.write(stored.seq, encode_commit(stored.commit))
        raise ZeroDivisionError
    assert files(tmp_path) == before
    assert [each.seq for each in read_archive(tmp_path)] == [1, 2, 3, 4, 5, 6]


def test_one_that_breaks_off_between_a_segment_and_its_manifest_is_mended(tmp_path, log):
    archive(tmp_path / "a", log, upto=6)
    archive(tmp_path / "b", log)
    extra = read_manifest(tmp_path / "b").segments[1].file
    (tmp_path / "a" / extra).write_bytes((tmp_path / "b" / extra).read_bytes()[:50])
    assert read_manifest(tmp_path / "a").end == 6
    archive(tmp_path / "a", log)
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_a_sealed_one_says_so(tmp_path, log):
    with ArchiveWriter(tmp_path, "main", "bench", 1) as writer:
        for stored in log:
            writer.write(stored.seq, encode_commit(stored.commit))
        writer.seal()
    assert read_manifest(tmp_path).sealed
    assert read_manifest(tmp_path).end == len(log)


def test_nothing_is_left_out_and_nothing_mixed(tmp_path, log):
    archive(tmp_path / "a", log, upto=4)
    with pytest.raises(ArchiveError, match="holds log bench, generation 1, and not other"):
        ArchiveWriter(tmp_path / "a", "main", "other", 1)
    writer = ArchiveWriter(tmp_path / "a", "main", "bench", 1)
    with pytest.raises(ArchiveError, match="sequence 6 follows 4; commits are missing"):
        writer.write(6, b"{}")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(ArchiveError, match="holds other things"):
        ArchiveWriter(tmp_path / "full", "main", "bench", 1)
    assert not is_archive(tmp_path / "full")


@pytest.mark.parametrize("damage", ["byte", "missing", "manifest", "hole", "format"])
def test_damage_is_said_with_its_file(tmp_path, log, damage):
    archive(tmp_path, log)
    manifest = read_manifest(tmp_path)
    second = tmp_path / manifest.segments[1].file
    told = json.loads((tmp_path / MANIFEST).read_text())
    match damage:
        case "byte":
            body = bytearray(second.read_bytes())
            body[40] ^= 1
            second.write_bytes(body)
            words = f"{second.name} is damaged: its sha256 is "
        case "missing":
            second.unlink()
            words = f"{second.name} is missing"
        case "manifest":
            (tmp_path / MANIFEST).write_text("{")
            words = "is no manifest of an archive"
        case "hole":
            del told["segments"][1]
            (tmp_path / MANIFEST).write_text(json.dumps(told))
            words = "does not follow sequence 4; commits are missing"
        case _:
            (tmp_path / MANIFEST).write_text(json.dumps(told | {"format": 9}))
            words = "has format 9 and this build reads 1"
    with pytest.raises(ArchiveError, match=words):
        list(read_archive(tmp_path))
