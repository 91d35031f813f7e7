"""Every field of RayJobs, RayClusters and RayServices, edited in every state: what KubeRay does, and what Muster does.

The edits are those of an exempt user, or of a cluster without the policies: nothing refuses them.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable

import pytest

from kit import rayfields as data
from kit.compose import REPOSITORY
from kit.pages import has_part
from kit.rayfieldsplayed import PAGE, Row, guarded, played, rows, schema_fields, table, unchanged

ROWS = rows()
RECORDS = REPOSITORY / "tests" / "kit" / "records" / "kuberay"


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_an_edit_is_followed_and_what_runs_is_charged(row: Row) -> None:
    came = played(row.kind, row.state)[row.name]
    assert came.does == row.does
    assert came.charged >= came.runs, "all that runs is charged"
    if row.state == "waits":
        assert bool(came.charged) is bool(came.runs), "quota is held for pods that come, and for no others"
        assert came.charged or came.reads, "one that never starts says why"
    if came.charged > came.runs and row.state != "over":
        # What is charged beyond the pods: their spec asks for more, and the next pods will be so; the policies refuse.
        assert guarded(row) in ("refused", "its free parts") or row.state == "waits"


def test_every_field_has_a_row_or_a_reason() -> None:
    paths = {(row.kind, row.field.path) for row in ROWS}
    missing = [
        f"{kind} {path}"
        for kind, fields in schema_fields().items()
        for path in fields
        if not any(kind == of and _covers(field, path) for of, field in paths)
        and not any(re.fullmatch(pattern, path) for pattern, _ in data.SAME)
    ]
    assert not missing, "an edit in OF_CLUSTERS, OF_JOBS or OF_SERVICES, or a reason in SAME"


def test_every_reason_is_for_a_field() -> None:
    fields = [path for paths in schema_fields().values() for path in paths]
    assert all(any(re.fullmatch(pattern, path) for path in fields) for pattern, _ in data.SAME)


@pytest.mark.parametrize("field", [field for field, _ in data.OF_CLUSTERS] + [*data.OF_JOBS, *data.OF_SERVICES],
                         ids=lambda field: field.path)  # fmt: skip
def test_a_named_record_has_the_field(field: data.Field) -> None:
    """`test_kuberay_recorded` plays each record, and compares the simulated operator with it."""
    leaf = field.path.rpartition(".")[2]
    for version in ("1.6.2", "1.7.0") if field.record else ():
        with gzip.open(RECORDS / version / f"{field.record}.jsonl.gz", "rt") as lines:
            assert f'"{leaf}"' in lines.read() or f"/{leaf}" in lines.read(), (version, field.record)


def _covers(field: str, path: str) -> bool:
    """A row for options covers each of them, and a row for a part of a list the list."""
    return path == field or path.startswith((f"{field}.", f"{field}[")) or field.startswith((f"{path}.", f"{path}["))


@pytest.mark.parametrize(("mark", "made"), [("rows", table), ("unchanged", unchanged)])
def test_the_page_has_the_rows(mark: str, made: Callable[[], str]) -> None:
    assert has_part(PAGE, mark, made()), "MUSTER_TEST_REWRITE=1 writes it"
