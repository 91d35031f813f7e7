"""The kinds of jobs that a platform team defines: read from a folder once, when a process starts.

The folder is ConfigMap ``muster-system/muster-kinds``, mounted: each file is one definition, in the form of
``muster.core.workloads.definition``. A definition that is not understood is left out, and named.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from muster.core.objects.meta import UnreadableError
from muster.core.reading import watched
from muster.core.workloads.definition import Definition
from muster.core.workloads.table import DEFINITIONS
from muster.told.wording import problems

NAME = "muster-kinds"
"""The ConfigMap, in namespace muster-system."""
PAGE = "docs/howto/kinds.md"

refused: list[str] = []
"""What was not understood when this process read its definitions: a sentence for each."""


class KindError(Exception):
    """A text is no definition; the message names the field and the way out."""


def read(text: str) -> Definition:
    """The definition in a YAML text. Raises KindError."""
    import yaml  # Most processes of the command line read none.

    try:
        return msgspec.convert(yaml.safe_load(text), Definition)
    except yaml.YAMLError as err:
        raise KindError(f"is not YAML: {' '.join(str(err).split())[:200]}") from err
    except msgspec.ValidationError as err:
        message, _, path = str(err).partition(" - at `$")
        where = path.strip("`.") or "the definition"
        fields = ", ".join(field.encode_name for field in msgspec.structs.fields(Definition))
        out = f"; the fields are {fields}" if "unknown field" in message and where == "the definition" else ""
        raise KindError(f"{where}: {message[:1].lower() + message[1:].replace('`', '')}{out}; see {PAGE}") from err


def define(definition: Definition) -> None:
    """Know one kind more. Raises KindError. A definition that is known already changes nothing."""
    if DEFINITIONS.get(definition.kind) == definition:
        return
    try:
        watched.define(definition)
    except UnreadableError as err:
        raise KindError(f"{problems.line(err.problem)}; see {PAGE}") from err


def load(folder: str) -> None:
    """Define the kinds of every file of a folder; what is not understood is in ``refused``."""
    home = Path(folder)
    files = sorted(path for path in home.iterdir() if path.is_file()) if home.is_dir() else []
    take((path.name, path.read_text()) for path in files)


def take(texts: Iterable[tuple[str, str]]) -> None:
    """Define kinds from (key of the ConfigMap, text)."""
    for key, text in texts:
        try:
            define(read(text))
        except KindError as err:
            sentence = f"ConfigMap muster-system/{NAME}, {key}: {err}"
            if sentence not in refused:
                refused.append(sentence)
