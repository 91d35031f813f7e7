"""Why the demand of a cluster could not be read. Each error has the code that metrics and facts use."""

from __future__ import annotations

from typing import ClassVar

from muster.model.raydemand import Trouble


class DemandError(Exception):
    """A head was not read. The message names the address, what was asked and the way out."""

    code: ClassVar[str] = "failed"
    """For metrics; one of a handful."""
    trouble: ClassVar[Trouble] = "unreachable"
    """For the fact."""


class UnreachableError(DemandError):
    """Nothing answers at the address, or the connection broke."""

    code = "unreachable"


class SlowError(DemandError):
    """No answer within the time limit."""

    code = "slow"


class RefusedError(DemandError):
    """The head refuses the request: the token is missing, or wrong."""

    code = "refused"
    trouble = "unauthorized"


class UnsupportedError(DemandError):
    """The head does not know the method: it is another version of Ray, or no Ray."""

    code = "unsupported"
    trouble = "unreadable"


class GarbledError(DemandError):
    """The answer cannot be read, or half of it is missing."""

    code = "malformed"
    trouble = "unreadable"


class TooLargeError(DemandError):
    """The answer is larger than the reader accepts."""

    code = "too_large"
    trouble = "unreadable"
