"""`make image`: the base of the image is named by its digest, or nothing is built; docker is a stand-in here."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kit.compose import REPOSITORY

DOCKER = """#!/bin/sh
echo "$*" >> "$NOTED"
case "$1" in buildx) printf '%s' "$DIGEST" ;; esac
"""
DIGEST = "sha256:" + "5e" * 32


def make(folder: Path, digest: str) -> tuple[int, list[str]]:
    """(exit code, what docker was told)"""
    programs, noted = folder / "programs", folder / "noted"
    programs.mkdir()
    (programs / "docker").write_text(DOCKER)
    (programs / "docker").chmod(0o755)
    environ = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "NOTED": str(noted), "DIGEST": digest}
    done = subprocess.run(["make", "image", "IMAGE=here/muster:1"], cwd=REPOSITORY, env=environ, capture_output=True)
    return done.returncode, noted.read_text().splitlines()


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
@pytest.mark.parametrize("digest", [DIGEST, ""])
def test_the_base_is_named_by_its_digest(tmp_path: Path, digest: str) -> None:
    base = re.findall(r"^ARG BASE=(.+)$", (REPOSITORY / "deploy" / "Dockerfile").read_text(), re.M)
    code, told = make(tmp_path, digest)
    asked = f"buildx imagetools inspect {base[0]} --format {{{{.Manifest.Digest}}}}"
    if digest:
        assert code == 0
        assert told == [
            asked,
            f"build -f deploy/Dockerfile --build-arg BASE=python@{DIGEST} -t here/muster:1 .",
        ]
    else:
        assert code != 0
        assert told == [asked], "nothing is built on a tag"
