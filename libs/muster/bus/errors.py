"""Errors between a process and the bus, apart from those that the ports name already."""

from __future__ import annotations


class BusError(Exception):
    """The bus cannot do what was asked and trying again will not help; the sentence says what to do."""


class ConnectError(BusError):
    """No usable connection: the address, the answer, and the next step."""


class ForbiddenError(BusError):
    """The account may not use a subject. Final for the connection: a forbidden publish is never answered."""

    def __init__(self, message: str, subject: str) -> None:
        super().__init__(message)
        self.subject = subject
        """As the server names it; nats-py turns it into lower case."""


class ClosedError(BusError):
    """The connection is closed, by us or for good by the server."""


class UnansweredError(Exception):
    """No answer came: it may have been carried out or not. Retryable where doing it twice does no harm."""


class ApiError(BusError):
    """JetStream refused a request."""

    def __init__(self, request: str, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{request}: {description} (code {code}, error {err_code})")
        self.code = code
        self.err_code = err_code
        self.description = description

    @property
    def full(self) -> bool:
        """Whether there is no room: of the stream, of the account, or on the disk."""
        if self.err_code in (STORAGE_EXCEEDED, INSUFFICIENT_RESOURCES):
            return True
        description = self.description
        return self.err_code == STORE_FAILED and (
            "maximum" in description or "no space" in description or "resource" in description
        )

    @property
    def gone(self) -> bool:
        """Whether there is no such stream, as far as the server that answered knows."""
        return self.err_code == STREAM_NOT_FOUND

    @property
    def passing(self) -> bool:
        """Whether the server said that it cannot answer now: no leader yet, still starting, overloaded, offline."""
        return (self.code == 503 and self.err_code not in PERMANENT) or self.err_code in PASSING


NO_MESSAGE = 10037
JETSTREAM_NOT_FOR_ACCOUNT = 10039
INSUFFICIENT_RESOURCES = 10023
STORAGE_EXCEEDED = 10047
STREAM_NAME_IN_USE = 10058
STREAM_NOT_FOUND = 10059
STREAM_MISMATCH = 10060
WRONG_LAST_SEQUENCE = (10071, 10164)
"""The second is what a replicated stream says while another write of the same subject is on its way."""
JETSTREAM_NOT_ENABLED = 10076
STORE_FAILED = 10077
STREAM_SEALED = 10109

PASSING = frozenset({10006, 10007, 10009, 10118, 10119})
"""Errors that JetStream reports as 500 while servers come and go: the cluster is not active, the stream is not placed,
another server leads, the servers of a stream or of a consumer are offline (server/errors.json of nats-server)."""
PERMANENT = frozenset({JETSTREAM_NOT_FOR_ACCOUNT, JETSTREAM_NOT_ENABLED, INSUFFICIENT_RESOURCES})
"""Errors that JetStream reports as 503 although waiting does not cure them."""


class PortTakenError(BusError):
    """Another process listens on the port that nats-server was to have."""


class NoRoomError(BusError):
    """The servers have no room for the next generation of a log: nothing was sealed."""
