"""The bus imports of nats-py what it uses, and leaves the rest as it is for others."""

import subprocess
import sys

import nats.js.api

from muster.bus import Header


def test_the_headers_are_those_of_the_client() -> None:
    for each in Header:
        assert nats.js.api.Header[each.name].value == each.value


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_jetstream_classes_are_loaded_by_those_that_use_them() -> None:
    light = "import muster.bus.connection, sys; print('nats.js.api' in sys.modules, 'nats.js.client' in sys.modules)"
    assert run(light) == "False False"
    part = "import muster.bus.subscribing, sys; print('nats.js.api' in sys.modules, 'nats.js.client' in sys.modules)"
    assert run(part) == "True False"
    whole = "import muster.bus, nats; print(nats.js.JetStreamContext.__name__, nats.js.api.Header.MSG_ID.value)"
    assert run(whole) == "JetStreamContext Nats-Msg-Id"
