"""Cuts a byte stream into lines. Pure; used by the transport for watch streams."""

from __future__ import annotations


class LineTooLongError(ValueError):
    """A line longer than the limit; the stream cannot be followed any further."""


class LineSplitter:
    """Feed chunks, get complete lines. Cost: linear in the bytes fed, for chunks of any size.

    Text after the last newline stays inside and is lost with the splitter: a line without its end is no line.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Lines completed by ``chunk``, without their newline; empty lines are left out.

        Raises LineTooLongError as soon as a line exceeds the limit.
        """
        first, *rest = chunk.split(b"\n")
        lines: list[bytes] = []
        self._keep(first)
        for piece in rest:
            line = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            if line and line != b"\r":
                lines.append(line)
            self._parts, self._size = [], 0
            self._keep(piece)
        return lines

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            raise LineTooLongError(f"a line has more than {self._limit} bytes")
        if piece:
            self._parts.append(piece)
