"""Whose job it is, and what it runs: read from the object for readers, and for nothing that is decided."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.core.objects.meta import OWNER, Meta, digest
from muster.core.objects.podspec import PodSpec
from muster.model.text import clean
from muster.model.workload import UNKNOWN_ORIGIN, Origin

MAX_OWNER = 128
MAX_IMAGE = 256


class Program(Struct, frozen=True):
    """An image, and the words of the command that runs in it; as they were written, none where nothing was."""

    image: object = None
    words: tuple[Any, ...] = ()

    def of_pod(self, pod: PodSpec) -> Program:
        """Where nothing is known yet, the program of a pod: that of its first container."""
        if self != NO_PROGRAM or not pod.containers:
            return self
        first = pod.containers[0]
        said = (first.command, first.args)
        return Program(first.image, said if any(said) else ())

    def running(self, *words: object) -> Program:
        """The same image with a command that the kind has a field of its own for."""
        return replace(self, words=words) if any(words) else self


NO_PROGRAM = Program()


def origin_of(meta: Meta, program: Program) -> Origin:
    """What is known of an object. A label counts before an annotation, in which a name may have any character."""
    owner = meta.labels.get(OWNER) or meta.annotations.get(OWNER, "")
    image = program.image if isinstance(program.image, str) else ""
    entrypoint = digest(program.words) if program.words else ""
    if not owner and not image and not entrypoint:
        return UNKNOWN_ORIGIN
    return Origin(_short(owner, MAX_OWNER), _short(image, MAX_IMAGE), entrypoint)


def _short(text: str, most: int) -> str:
    """One harmless line."""
    return clean(" ".join(text.split()))[:most]
