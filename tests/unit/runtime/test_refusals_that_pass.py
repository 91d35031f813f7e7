"""Which refusals of JetStream are waited out; the numbers are those of server/errors.json of nats-server."""

import pytest

from muster.bus.errors import ApiError

NOT_AVAILABLE, NO_RESOURCES, NO_STREAM = 10008, 10023, 10059
NOT_ACTIVE, NOT_ASSIGNED, NOT_LEADER, STREAM_OFFLINE, CONSUMER_OFFLINE = 10006, 10007, 10009, 10118, 10119


@pytest.mark.parametrize(
    ("code", "number", "passes"),
    [
        (503, NOT_AVAILABLE, True),
        *((500, number, True) for number in (NOT_ACTIVE, NOT_ASSIGNED, NOT_LEADER, STREAM_OFFLINE, CONSUMER_OFFLINE)),
        (503, NO_RESOURCES, False),
        (404, NO_STREAM, False),
    ],
)
def test_what_servers_say_that_come_and_go_ends_no_process(code: int, number: int, passes: bool) -> None:
    assert ApiError("a request", code, number, "what it says").passing is passes
