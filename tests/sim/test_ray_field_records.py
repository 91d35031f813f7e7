"""The rows of `kit.rayfields` beside what real operators did (KubeRay 1.6.2 and 1.7.0), edit by edit.

`make kuberay` plays the edits on the operators, and compares with the same records.
"""

from __future__ import annotations

import pytest

from kit import rayfields as data
from kit.rayfieldsplayed import Row, rows
from kit.realkuberay.fields import Seen, recorded

RECORDS = {version: recorded(version) for version in ("1.6.2", "1.7.0")}
UNRECORDED = {
    "idleSuspend": "no release has the field yet",
    "historyServerOptions": "of a RayCluster: the feature gate was off when the edit was played",
}
"""{the end of a field: why edits of it have no record}"""
LEFT = 9
"""Rows without a record."""
DIFFERS = {
    # 1.6 writes the field into the serving cluster; 1.7 reads it when it makes a cluster.
    ("1.6.2", "RayService serves rayClusterConfig.suspend true"): data.GONE,
    # A race: the second is over before the RayCluster is made.
    ("1.6.2", "RayJob waits activeDeadlineSeconds 1"): data.NEVER,
    ("1.7.0", "RayJob waits activeDeadlineSeconds 1"): data.NEVER,
}
"""{(release, row): what this release was recorded to do, where it differs from the row}"""


def told(row: Row, seen: Seen) -> str:
    """What KubeRay did, in the words of the rows."""
    before, kept, after = seen.pods
    clusters, same, now = seen.clusters
    if seen.word == "ValidationFailed":
        return data.DIES
    if row.state == "waits":
        return data.STARTS if after else data.NEVER
    if row.state == "runs" and seen.word == "Failed":
        return data.ENDS
    if not after:
        return data.RESTARTS if seen.admitted else data.GONE if before else data.NOTHING
    if before == kept == after:
        return data.STUCK if now > clusters else data.NOTHING
    if clusters and not same:
        return data.SECOND
    return data.AGAIN if not kept else data.MORE if after > before else data.FEWER if after < before else data.AGAIN


@pytest.mark.parametrize("version", RECORDS)
def test_the_real_operator_does_what_the_row_says(version: str) -> None:
    known = [(row, RECORDS[version].get(row.name)) for row in rows()]
    wrong = {row.name: (told(row, seen), row.does) for row, seen in known
             if seen is not None and not seen.dropped
             and told(row, seen) != DIFFERS.get((version, row.name), row.does)}  # fmt: skip
    assert wrong == {}


def test_every_row_has_a_record_or_a_cause() -> None:
    played = {name for seen in RECORDS.values() for name, one in seen.items() if not one.dropped}
    left = {row.name: row.field.path.rpartition(".")[2] for row in rows() if row.name not in played}
    assert [name for name, field in left.items() if field not in UNRECORDED] == []
    assert len(left) == LEFT, f"write down the number of rows without a record: {len(left)}"


def test_every_record_is_of_a_row() -> None:
    names = {row.name for row in rows()}
    assert not [name for seen in RECORDS.values() for name in seen if name not in names]
