"""What a snapshot is recognised by is the same in every process of a version."""

import os
import re
import subprocess
import sys

import msgspec
import pytest

from muster.core.observed.presence import Presence
from muster.core.observed.seen import Seen
from muster.runtime.logkeeping.rolling import seats
from muster.runtime.logkeeping.snapshotting import _describe, _schema, state_schema

PROGRAM = """
from muster.runtime.logkeeping.rolling import seats
from muster.runtime.logkeeping.snapshotting import state_schema
print([state_schema(type(stage.initial())) for stage in seats().values()])
"""


def test_the_schema_of_every_state_is_the_same_in_another_process() -> None:
    here = str([state_schema(type(stage.initial())) for stage in seats().values()])
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == here


def test_states_of_another_shape_have_another_schema() -> None:
    kinds = {type(stage.initial()) for stage in seats().values()}
    assert len({state_schema(kind) for kind in kinds}) == len(kinds) > 5


def test_the_schema_has_every_struct_that_a_decoder_of_the_state_makes() -> None:
    for kind in {type(stage.initial()) for stage in seats().values()}:
        described: dict[type, str] = {}
        _describe(kind, described)
        made = re.findall(r"StructType\(cls=<class '[\w.]+\.(\w+)'>", repr(msgspec.inspect.type_info(kind)))
        assert made and set(made) <= {part.__name__ for part in described}


def test_a_class_keeps_its_schema_in_another_module(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _schema.__wrapped__(Presence)
    for kind in (Presence, Seen):
        monkeypatch.setitem(sys.modules, f"elsewhere.{kind.__name__}", sys.modules[kind.__module__])
        monkeypatch.setattr(kind, "__module__", f"elsewhere.{kind.__name__}")
    assert "elsewhere" in repr(msgspec.inspect.type_info(Presence))
    assert _schema.__wrapped__(Presence) == before
