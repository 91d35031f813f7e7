"""The languages of sentences beside English: one catalogue for each, read with ``gettext``.

``muster.po`` is what translators write, ``muster.mo`` is made of it (``make messages``). Ids are the English texts.
"""

from __future__ import annotations

import gettext
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from muster.model import language

FOLDER = Path(__file__).parent
TAGS = {"en": "", "zh-CN": "zh_CN"}
"""{language tag: folder of its catalogue}; English needs none."""

_ALSO = {"zh": "zh-CN", "zh-hans": "zh-CN", "zh-hans-cn": "zh-CN", "zh-sg": "zh-CN", "zh-cn": "zh-CN"}


def tag_of(name: str) -> str:
    """The language that a name means: ``zh_CN.UTF-8``, ``zh-Hans``, ``en-GB``; empty for a language without texts."""
    plain = name.partition(".")[0].partition("@")[0].replace("_", "-").lower()
    if plain in ("c", "posix") or plain == "en" or plain.startswith("en-"):
        return "en"
    return _ALSO.get(plain, "")


def spoken() -> str:
    """The tag of the language in force."""
    catalogue_in_force = language.in_force()
    return "en" if catalogue_in_force is None else tag_of(catalogue_in_force.info()["language"])


def of_terminal(environ: Mapping[str, str]) -> str:
    """The language of a command: the first of MUSTER_LANG, LC_ALL, LC_MESSAGES and LANG that is set; else English."""
    settings = (environ.get(name, "") for name in ("MUSTER_LANG", "LC_ALL", "LC_MESSAGES", "LANG"))
    return tag_of(next(filter(None, settings), "")) or "en"


def preferred(accepted: str) -> str:
    """The first language with texts of an Accept-Language header, by weight; English where there is none."""
    weighed = []
    for place, part in enumerate(accepted.split(",")[:20]):
        name, _, weight = part.strip().partition(";q=")
        try:
            weighed.append((-float(weight or 1), place, tag_of(name.strip())))
        except ValueError:
            continue
    return next((tag for weight, _, tag in sorted(weighed) if tag and weight < 0), "en")


@cache
def catalogue(tag: str) -> gettext.NullTranslations | None:
    """The texts of a language; None for English. Raises KeyError for a language without texts."""
    folder = TAGS[tag]
    return gettext.translation("muster", FOLDER, [folder]) if folder else None
