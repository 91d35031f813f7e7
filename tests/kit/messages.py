"""The messages of the sources, and the catalogues of other languages.

    python -m kit.messages             # report the ids without a text, the unused ids and the differing values
    python -m kit.messages --write     # bring the catalogues up to the sources, and compile them

A message is a literal given to ``say``, ``say_many``, ``counted``, ``translated`` or ``marked``, a text of a table of
words, or a text that a help page asks for.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from gettext import NullTranslations
from io import BytesIO, StringIO
from pathlib import Path
from string import Formatter

from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from rich.console import Console

import muster.languages
from muster.model import text
from muster.model.language import speaking
from muster.told.wording import events, explain, jobs, pods, problems, reasons
from muster_cli.helping import overview
from muster_cli.invariants import UNCHECKED
from muster_cli.main import make_app
from muster_cli.registry import COMMANDS, GROUPS
from muster_cli.render.jobs import HEADS, PHASES

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("libs/muster", "services")
FOLDER = Path(muster.languages.__file__).parent
LANGUAGES = tuple(sorted(path.parent.parent.name for path in FOLDER.glob("*/LC_MESSAGES/muster.po")))
PAGES = ROOT / "services" / "muster_gateway" / "static"
TAGS = {folder: tag for tag, folder in muster.languages.TAGS.items()}

HEADER = "# Sentences of Muster. Terms: docs/reference/glossary.zh-CN.md. Ids: python -m kit.messages --write"

Id = str | tuple[str, str]
"""A message, or the singular and the plural of one."""


def tables() -> Iterator[str]:
    """The texts of the tables of words."""
    for _, table in reasons.TABLES.values():
        yield from (words if isinstance(words, str) else words[1] for words in table.values())
    yield reasons.BYPASSED
    for words in (
        problems.TEMPLATES,
        explain.ENDS,
        pods.EVICTED_BY,
        explain.OUTCOMES,
        explain.LEVERS,
        explain.KEEPS_AWAY,
        jobs.ENDED,
        HEADS,
        PHASES,
        UNCHECKED,
    ):
        yield from words.values()
    yield from (way for _, way in pods.WORDS.values())
    yield from text.UNITS.values()
    yield from (", ", "ready", *events.words())


@cache
def messages() -> dict[Id, str]:
    """{id: the file that uses the message}"""
    used: dict[Id, str] = {}
    for words in tables():
        used.setdefault(words, "tables of words")
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            source = path.read_text()
            for message in _literals(source) if _SPEAKS.search(source) else ():
                used.setdefault(message, str(path.relative_to(ROOT)))
    for message, where in scripted().items():
        used.setdefault(message, where)
    for message in helped():
        used.setdefault(message, "help pages")
    return used


class Asked(NullTranslations):
    """A catalogue that keeps the ids that it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: dict[str, None] = {}

    def gettext(self, message: str) -> str:
        self.ids.setdefault(message)
        return message


def page_of_help(name: str) -> str:
    """The help page of a command."""
    text = StringIO()
    console = Console(file=text, width=200, highlight=False)
    make_app(100, only=name).help_print(name.split(), console=console)
    return text.getvalue()


@cache
def helped() -> tuple[str, ...]:
    """The messages of the help pages: of commands, options, groups and exit codes."""
    asked = Asked()
    with speaking(asked):
        for group in ("", *GROUPS):
            overview(group, 100)
        for page in COMMANDS:
            page_of_help(page.name)
    return tuple(asked.ids)


_SCRIPT_TEXT = re.compile(r'(?<![\w.])t\(("(?:[^"\\]|\\.)*")')
_SCRIPT_NOUN = re.compile(r'(?<![\w.])many\([^"`]*?, "([a-z ]+)"\)')


@cache
def scripted() -> dict[Id, str]:
    """{message of the dashboard: the script that uses the message}"""
    used: dict[Id, str] = {}
    for path in sorted(PAGES.glob("*.js")):
        script = path.read_text()
        for literal in _SCRIPT_TEXT.findall(script):
            used.setdefault(json.loads(literal), str(path.relative_to(ROOT)))
        for noun in _SCRIPT_NOUN.findall(script):
            used.setdefault((f"{{number}} {noun}", f"{{number}} {noun}s"), str(path.relative_to(ROOT)))
    return used


def page_texts(language: str) -> str:
    """The texts of the dashboard, with the words of events and states, as the page reads them."""
    texts = {message.id: message.string for message in read(language) if message.id}
    wanted: dict[str, str] = {}
    words = ("ready", *events.words(), *PHASES.values(), *explain.OUTCOMES.values(), *text.UNITS.values())
    for message in (*scripted(), *words):
        if isinstance(message, tuple):
            wanted |= dict.fromkeys(message, texts[message][0])
        else:
            wanted[message] = texts[message]
    return json.dumps(wanted, ensure_ascii=False, indent=0, sort_keys=True) + "\n"


SPEAK = ("say", "say_many", "counted", "translated", "marked")


_SPEAKS = re.compile(
    r"muster\.model\.language|model import language|muster\.model\.text import .*counted|^def translated", re.M
)


def _names(nodes: list[ast.AST]) -> dict[str, str]:
    """{name in a module: the function that it is}: some modules have a function ``say`` of their own."""
    names = {"_said": "_said"}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module in ("muster.model.language", "muster.model.text"):
            names |= {alias.asname or alias.name: alias.name for alias in node.names if alias.name in SPEAK}
        if isinstance(node, ast.ImportFrom) and any(alias.name == "language" for alias in node.names):
            names |= {f"language.{name}": name for name in SPEAK}
    return names


def _literals(source: str) -> Iterator[Id]:
    nodes = list(ast.walk(ast.parse(source)))
    names = _names(nodes)
    for call in nodes:
        if not isinstance(call, ast.Call):
            continue
        args = [list(_texts(arg)) for arg in call.args]
        match names.get(_called(call.func)):
            case "say" | "translated" | "marked" if args:
                yield from args[0]
            case "_said" if len(args) == 2:
                yield from args[1]
            case "say_many" if len(args) == 3 and args[1] and args[2]:
                yield args[1][0], args[2][0]
            case "counted" if len(args) > 1 and args[1]:
                noun, plural = args[1][0], args[2][0] if len(args) > 2 else args[1][0] + "s"
                yield f"{{number}} {noun}", f"{{number}} {plural}"


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Name):
        return function.id
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}"
    return ""


def _texts(node: ast.expr) -> Iterator[str]:
    """The literals that an argument may be."""
    if isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def values(template: str) -> set[str]:
    """The names in a message, with conversion and format; none in a text with braces of its own."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError:
        return set()
    return {
        f"{name}{f'!{conversion}' if conversion else ''}{f':{spec}' if spec else ''}"
        for _, name, spec, conversion in parts
        if name is not None
    }


def read(language: str) -> Catalog:
    with (FOLDER / language / "LC_MESSAGES" / "muster.po").open("rb") as file:
        return read_po(file, locale=language)


def compiled(catalogue: Catalog) -> bytes:
    target = BytesIO()
    write_mo(target, catalogue)
    return target.getvalue()


def faults(language: str) -> list[str]:
    """What a catalogue lacks, has too much, or says with other values."""
    catalogue, used = read(language), messages()
    texts = {message.id: message.string for message in catalogue if message.id}
    wrong = [f"{where}: no text for {message!r}" for message, where in used.items() if not _whole(texts.get(message))]
    wrong += [f"not used: {message!r}" for message in texts if message not in used]
    for message, string in texts.items():
        one = message if isinstance(message, str) else message[1]
        for words in (string,) if isinstance(string, str) else string:
            if words and values(words) != values(one):
                wrong.append(f"other values: {message!r} -> {words!r}")
    return wrong


def _whole(string: str | tuple[str, ...] | None) -> bool:
    return bool(string) and (isinstance(string, str) or all(string))


def write(language: str, texts: Mapping[Id, str] | None = None) -> None:
    """Bring a catalogue up to the sources. ``texts``: new texts."""
    old = read(language)
    new = Catalog(
        locale=language,
        header_comment=HEADER,
        project="muster",
        version="",
        creation_date=old.creation_date,
        revision_date=old.creation_date,
        last_translator="",
        language_team="",
        fuzzy=False,
    )
    known = {message.id: message.string for message in old if message.id} | dict(texts or {})
    for message in sorted(messages(), key=lambda key: (messages()[key], str(key))):
        string = known.get(message, "")
        new.add(message, string, auto_comments=[messages()[message]])
    folder = FOLDER / language / "LC_MESSAGES"
    with (folder / "muster.po").open("wb") as file:
        write_po(file, new, width=120, omit_header=False)
    (folder / "muster.mo").write_bytes(compiled(new))
    if not faults(language):
        (PAGES / f"{TAGS[language]}.json").write_text(page_texts(language))


if __name__ == "__main__":
    for each in LANGUAGES:
        if "--write" in sys.argv:
            write(each)
        for fault in faults(each):
            print(f"{each}: {fault}")
