"""What real KubeRay operators published, line by line: what runs is charged, once, and free when it is gone.

A sample is in `tests/kit/records/kuberay`, from operators 1.4.2, 1.6.2 and 1.7.0; MUSTER_TEST_RECORDS names a folder
with more. A pod that only submits a job is not judged: where it outlives the job it is not charged.
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import get_args

import pytest

from kit.compose import REPOSITORY
from kit.kuberayrecords import Disturbance, idle, wrong

FOLDER = Path(os.environ.get("MUSTER_TEST_RECORDS", REPOSITORY / "tests" / "kit" / "records" / "kuberay"))
RECORDS = sorted(FOLDER.glob("*/*.jsonl.gz"))


def test_the_sample_is_there() -> None:
    assert {each.parent.name for each in RECORDS} >= {"1.4.2", "1.6.2", "1.7.0"}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: f"{path.parent.name}-{path.name.partition('.')[0]}")
def test_muster_is_right_at_every_line(path: Path) -> None:
    assert wrong(path) == []


UPGRADES = {("1.6.2", "rayservice-upgrade.jsonl")}
"""The refused workers are of the new cluster of an upgrade, in a release whose services nobody suspends."""


@pytest.mark.parametrize("how", get_args(Disturbance))
@pytest.mark.parametrize("path", RECORDS, ids=lambda path: f"{path.parent.name}-{path.name.partition('.')[0]}")
def test_nothing_is_charged_and_idle(path: Path, how: Disturbance) -> None:
    """Beside finalizers that hang, pods that the cluster refuses, and a controller that is late."""
    lines = idle(path, how)
    if how == "some pods are refused" and (path.parent.name, path.stem) in UPGRADES:
        assert lines, "what serves is not stopped for its upgrade (decision record 141)"
    else:
        assert lines == []


@pytest.mark.parametrize("how", ["pods are refused", "some pods are refused", "the controller is late"])
def test_the_judge_sees_what_is_idle(how: Disturbance) -> None:
    path = next(each for each in RECORDS if each.name.startswith("rayjob-k8sjobmode."))
    assert idle(path, how, limit_s=0)


def test_the_judge_sees_a_pod_that_nobody_counts(tmp_path: Path) -> None:
    """A worker that is made larger than all that is said of it, and one that outlives what is released."""
    source = next(each for each in RECORDS if each.name.startswith("raycluster-plain"))
    lines = [json.loads(line) for line in gzip.decompress(source.read_bytes()).splitlines()]
    for line in lines[1:]:
        owners = line["object"]["metadata"].get("ownerReferences", [])
        if line["object"]["kind"] == "Pod":
            for owner in owners:
                owner["controller"] = False
            pod = {**owners[0], "apiVersion": "v1", "kind": "Pod", "controller": True}  # To Muster it is nobody's.
            line["object"]["metadata"]["ownerReferences"] = [*owners, pod]
            line["object"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "7"}}
    path = tmp_path / "changed.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(json.dumps(each) for each in lines).encode()))
    assert any("runs with cpu" in each for each in wrong(path))
