"""The servers of NATS, each as it says of itself: asked in the system account, which answers without any quorum.

The account of a user imports the two requests (deploy/nats/accounts.conf). Each server that is up answers for itself
alone: of its own copy of each stream, where the API of JetStream has only what the leader of a stream says.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct, field
from nats.aio.msg import Msg

from muster.bus.connection import Connection, no_responders
from muster.bus.errors import UnansweredError
from muster.model.language import say

STATES = "$SYS.REQ.SERVER.PING.JSZ"
HEALTH = "$SYS.REQ.SERVER.PING.HEALTHZ"
REQUESTS = (STATES, HEALTH)
"""What the system account exports to those that look after the servers."""
ANSWERS_S = 1.5
"""How long a server may take to answer: nothing is looked up for it."""


class Copy(Struct, frozen=True):
    """What one server has of a stream; ``messages`` is less than ``first`` to ``last`` where some are missing."""

    first: int
    last: int
    messages: int
    leader: str = ""
    """The leader of the stream, as this server knows it."""
    others: tuple[str, ...] = ()
    """The other servers that the stream is on, as this server knows them."""

    @property
    def missing(self) -> int:
        """How many messages between first and last it does not have."""
        return self.last - self.first + 1 - self.messages if self.last else 0


class Server(Struct, frozen=True):
    """A server that is up. ``used`` and ``limit``: bytes of its store; ``leader``: that of JetStream, empty for none.

    ``peers``: the other servers that JetStream is made of, as far as it knows them; ``complaint``: what is wrong with
    its health in its own words.
    """

    name: str
    jetstream: bool
    used: int = 0
    limit: int = 0
    leader: str = ""
    peers: tuple[str, ...] = ()
    copies: dict[str, Copy] = {}
    complaint: str = ""


class _Name(Struct, frozen=True):
    name: str


class _RaftGroup(Struct, frozen=True):
    leader: str = ""
    replicas: list[_Name] = []


class _State(Struct, frozen=True):
    messages: int = 0
    first_seq: int = 0
    last_seq: int = 0


class _Stream(Struct, frozen=True):
    name: str
    state: _State = _State()
    cluster: _RaftGroup = _RaftGroup()


class _Account(Struct, frozen=True):
    stream_detail: list[_Stream] = []


class _Config(Struct, frozen=True):
    max_storage: int = 0


class _States(Struct, frozen=True):
    disabled: bool = False
    storage: int = 0
    config: _Config = _Config()
    meta_cluster: _RaftGroup = _RaftGroup()
    account_details: list[_Account] = []


class _Health(Struct, frozen=True):
    status: str = ""
    error: str = ""


class _StatesAnswer(Struct, frozen=True):
    server: _Name
    data: _States = _States()


class _HealthAnswer(Struct, frozen=True):
    server: _Name
    data: _Health = _Health()


_states = msgspec.json.Decoder(_StatesAnswer)
_health = msgspec.json.Decoder(_HealthAnswer)


class _Heard(Struct):
    """What has come in: {server: its answer}."""

    found: dict[str, Any] = field(default_factory=dict)
    refused: bool = False


async def ask_servers(connection: Connection) -> list[Server]:
    """Every server that is up, by name.

    Raises UnansweredError where no server answers: the account does not import the requests, or there is no connection;
    ForbiddenError where the user may not send them.
    """
    states = await _ask(connection, STATES, b'{"accounts":true,"streams":true}', _states.decode, _complete)
    if not states:
        raise UnansweredError(
            say("no server answers on {subject}: the account of this user does not import that subject", subject=STATES)
        )
    healths = await _ask(connection, HEALTH, b"", _health.decode, lambda answers: states.keys() <= answers.keys())
    return [_server(answer, healths.get(name)) for name, answer in sorted(states.items())]


def _server(answer: _StatesAnswer, health: _HealthAnswer | None) -> Server:
    data = answer.data
    return Server(
        name=answer.server.name,
        jetstream=not data.disabled,
        used=data.storage,
        limit=data.config.max_storage,
        leader=data.meta_cluster.leader,
        peers=tuple(replica.name for replica in data.meta_cluster.replicas if replica.name != answer.server.name),
        copies={
            stream.name: Copy(
                stream.state.first_seq,
                stream.state.last_seq,
                stream.state.messages,
                stream.cluster.leader,
                tuple(replica.name for replica in stream.cluster.replicas),
            )
            for account in data.account_details
            for stream in account.stream_detail
        },
        complaint=health.data.error if health is not None else "",
    )


def _complete(answers: dict[str, _StatesAnswer]) -> bool:
    """Whether every server that one of them knows has answered."""
    known = {peer.name for answer in answers.values() for peer in answer.data.meta_cluster.replicas}
    return bool(known) and known <= answers.keys()


async def _ask(
    connection: Connection,
    subject: str,
    body: bytes,
    decode: Callable[[bytes], Any],
    complete: Callable[[dict[str, Any]], bool],
) -> dict[str, Any]:
    """The answers of all servers by their names, those of ANSWERS_S, fewer where they are complete before."""
    heard, done = _Heard(), asyncio.Event()

    def take(message: Msg) -> None:
        if no_responders(message):
            heard.refused = True
        elif message.data:
            with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
                answer = decode(message.data)
                heard.found[answer.server.name] = answer
        if heard.refused or complete(heard.found):
            done.set()

    inbox = connection.new_inbox()
    subscription = await connection.subscribe(inbox, take)
    try:
        await connection.publish(subject, body, reply=inbox)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWERS_S):
                await done.wait()
    finally:
        await connection.unsubscribe(subscription)
    if connection.failure is not None:
        raise connection.failure
    return heard.found
