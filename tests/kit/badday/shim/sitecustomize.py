"""Loaded by each service of a bad day: its clock may be set, and bugs may be planted (``BADDAY_PLANT``)."""

import os
import struct
import time
from pathlib import Path

_PATH = Path(os.environ.get("BADDAY_FOLDER", "/")) / f"{os.environ.get('MUSTER_PROCESS', '')}.clock"
_time_ns, _time = time.time_ns, time.time
_read = [0.0, 0]
"""When the offset was read (monotonic), and what it is (ms)."""


def _offset_ms() -> int:
    now = time.monotonic()
    if now - _read[0] > 0.2:
        try:
            [offset] = struct.unpack("<q", _PATH.read_bytes())
        except (OSError, struct.error):
            offset = 0
        _read[:] = [now, offset]
    return int(_read[1])


if os.environ.get("MUSTER_PROCESS"):
    time.time_ns = lambda: _time_ns() + _offset_ms() * 1_000_000
    time.time = lambda: _time() + _offset_ms() / 1000

if os.environ.get("BADDAY_PLANT"):
    import planted

    planted.plant(int(os.environ["BADDAY_PLANT"]))
