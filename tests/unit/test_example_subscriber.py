"""The Python example of a subscriber: what its library raises while nothing comes does not end it."""

import importlib.util
from types import ModuleType, SimpleNamespace
from typing import Any

import nats.errors
import pytest

from kit.compose import REPOSITORY


class Over(Exception):
    """Ends the example, which runs for ever."""


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "subscribe_example", REPOSITORY / "examples" / "subscribe" / "python" / "subscribe.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The library raises its own kind of TimeoutError, and where the time is up between two requests the plain one.
@pytest.mark.parametrize("silence", [nats.errors.TimeoutError(), TimeoutError()])
async def test_silence_does_not_end_it(silence: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Exception] = [silence, Over()]
    module = example()

    async def fetch(*_: Any, **__: Any) -> list[Any]:
        raise answers.pop(0)

    async def subscribe(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(fetch=fetch)

    async def connect(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(jetstream=lambda **_: SimpleNamespace(pull_subscribe=subscribe))

    monkeypatch.setattr(module.nats, "connect", connect)
    with pytest.raises(Over):
        await module.main()
    assert not answers
