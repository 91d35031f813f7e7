"""The first server that a policy can be applied to: what its file says, and what ``muster doctor`` goes by."""

import re
from itertools import takewhile
from pathlib import Path

import pytest

from kit.compose import REPOSITORY
from muster_cli.policychecks import POLICIES

FILES = sorted((REPOSITORY / "deploy" / "policies").glob("*.yaml"))
SINCE = {policy.name: (policy.since.major, policy.since.minor) for policy in POLICIES}


@pytest.mark.parametrize("file", FILES, ids=lambda each: str(each.stem))
def test_a_file_says_from_which_server_on_as_doctor_does(file: Path) -> None:
    text = file.read_text()
    header = " ".join(line.lstrip("# ") for line in takewhile(lambda each: each.startswith("#"), text.splitlines()))
    said = re.search(r"Kubernetes (\d+)\.(\d+) on", header)
    assert said, f"{file.name} does not say from which server on it can be applied"
    names = {name for name in re.findall(r"^  name: (\S+)$", text, re.MULTILINE) if name in SINCE}
    assert names and {SINCE[name] for name in names} == {(int(said[1]), int(said[2]))}
