"""The language of sentences: the one place that puts values into words.

A message is an English text with named values, written where the text is used: ``say("{job} waits", job=job)``. The
English text is the id of the message. A catalogue has the text of the same id in another language, see
``muster.languages``. English is the default, and needs no catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gettext import NullTranslations

_CATALOGUE: ContextVar[NullTranslations | None] = ContextVar("catalogue", default=None)


@contextmanager
def speaking(catalogue: NullTranslations | None) -> Iterator[None]:
    """Sentences made inside are in the language of a catalogue; None: in English."""
    token = _CATALOGUE.set(catalogue)
    try:
        yield
    finally:
        _CATALOGUE.reset(token)


def speak(catalogue: NullTranslations | None) -> None:
    """All further sentences of this context are in the language of a catalogue: for a process of one user."""
    _CATALOGUE.set(catalogue)


def in_force() -> NullTranslations | None:
    """The catalogue of the language in force; None for English."""
    return _CATALOGUE.get()


def english() -> bool:
    """Whether sentences are in English now."""
    return _CATALOGUE.get() is None


def say(text: str, /, **values: object) -> str:
    """A message with its values, in the language in force. ``text``: the English text, with a name for each value."""
    return _spaced(translated(text).format(**values))


def marked(text: str) -> str:
    """The id of a message in a table of a module: for :func:`say`, :func:`translated`, where the text is used."""
    return text


def translated(text: str) -> str:
    """The text of an id in the language in force, with the names of the values in it."""
    catalogue = _CATALOGUE.get()
    return text if catalogue is None else catalogue.gettext(text)


def say_many(number: int, one: str, many: str, /, **values: object) -> str:
    """A message that depends on a number: ``one`` is the English text for 1, ``many`` the text for all others."""
    catalogue = _CATALOGUE.get()
    text = (one if number == 1 else many) if catalogue is None else catalogue.ngettext(one, many, number)
    return _spaced(text.format(**values))


_SEAM = re.compile("(?<=[\u4e00-\u9fff])(?=[A-Za-z0-9`])|(?<=[A-Za-z0-9`%])(?=[\u4e00-\u9fff])")


def _spaced(text: str) -> str:
    """With a blank between Chinese and Latin letters, as Chinese technical texts have. English stays as it is."""
    return text if _CATALOGUE.get() is None else _SEAM.sub(" ", text)


def counted(number: int, noun: str, plural: str = "") -> str:
    """``1 job``, ``3 jobs``; the ids of a noun are ``{number} job`` and ``{number} jobs``."""
    return say_many(number, f"{{number}} {noun}", f"{{number}} {plural or noun + 's'}", number=number)


def lower(text: str) -> str:
    """With a small first letter, inside a line. Only English has such letters."""
    return text[:1].lower() + text[1:] if english() else text


def upper(text: str) -> str:
    """With a capital first letter, at the beginning of a sentence. Only English has such letters."""
    return text[:1].upper() + text[1:] if english() else text


def first_sentence(text: str) -> str:
    """The first sentence, without a full stop."""
    return text.partition(say(". "))[0]


def listed(names: Iterable[str]) -> str:
    """Names, or parts of a sentence without commas: ``a, b, c``."""
    return say(", ").join(names)
