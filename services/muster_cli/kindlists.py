"""The lists of job kinds in the manifests of ``deploy``: written from the registry, the rest stays as it is.

There are two sorts of lists, in ``deploy/policies`` and ``deploy/rbac``. Rules are between the lines ``# From here
made by `make schemas`: VERBS on SELECTION`` and ``# To here.``; verbs in capitals are operations that a policy judges,
other verbs belong to a role. Lists inside an expression are found by the surrounding text.
``muster_tools.shipping`` writes the files; a test keeps the files equal to this source.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from muster.core.workloads.registry import KINDS, Kind
from muster_cli.guardcel import with_edits

FOLDERS = ("deploy/policies", "deploy/rbac")
KUBERNETES_OWN = "batch"
"""The API group whose kinds have no part ``scale``."""
WIDTH = 120

Kinds = Mapping[str, Kind]

_RULES = re.compile(
    r"^(?P<head>(?P<indent> *)# From here made by `make schemas`: (?P<verbs>[\w, ]+) on (?P<selection>[\w. ]+)\n)"
    r".*?^(?P<end> *# To here\.\n)",
    re.MULTILINE | re.DOTALL,
)


def manifests() -> dict[str, str]:
    """{file below the repository: text} of every manifest that may list kinds."""
    return {str(path): relisted(path.read_text()) for folder in FOLDERS for path in sorted(Path(folder).glob("*.yaml"))}


def relisted(text: str, kinds: Kinds = KINDS) -> str:
    """A manifest with the lists of kinds as in the registry.

    Raises LookupError for an unknown selection.
    """

    def rules(match: re.Match[str]) -> str:
        lines = _rules(match["verbs"], SELECTIONS[match["selection"]](kinds))
        return match["head"] + "".join(f"{match['indent']}{line}\n" for line in lines) + match["end"]

    text = with_edits(_RULES.sub(rules, text), kinds)
    for pattern, items in _lists(kinds).items():
        text = _with_list(text, re.compile(r"\[[^\[\]]*\]".join(pattern)), items)
    return text


# --- rules of policies and roles --------------------------------------------------------------------------------------

Selected = list[tuple[str, tuple[str, ...], tuple[str, ...]]]
"""(API group, versions, resources)"""


def _by_group(rows: Iterable[Kind], kinds: Kinds) -> Selected:
    """The kinds by group, with every version of the group's kinds: some groups are served in several versions."""
    groups: dict[str, set[str]] = {}
    for row in rows:
        groups.setdefault(row.resource.group, set()).add(row.resource.plural)
    versions = {
        group: {row.resource.version for row in kinds.values() if row.resource.group == group} for group in groups
    }
    return [(group, tuple(sorted(versions[group])), tuple(sorted(names))) for group, names in groups.items()]


def _field(row: Kind) -> str:
    return row.suspend_path[1:].replace("/", ".")


def _suspended_by(field: str) -> Callable[[Kinds], Selected]:
    return lambda kinds: _by_group([row for row in kinds.values() if _field(row) == field], kinds)


def _scaled(kinds: Kinds) -> Selected:
    return [(group, ("*",), ("*/scale",)) for group in _groups(kinds) if group != KUBERNETES_OWN]


def _told(kinds: Kinds) -> Selected:
    return [
        (group, ("*",), tuple(f"{name}/status" for name in names))
        for group, _, names in _by_group(kinds.values(), kinds)
    ]


SELECTIONS: dict[str, Callable[[Kinds], Selected]] = {
    "all kinds": lambda kinds: _by_group(kinds.values(), kinds),
    "kinds with spec.suspend": _suspended_by("spec.suspend"),
    "kinds with spec.runPolicy.suspend": _suspended_by("spec.runPolicy.suspend"),
    "sizes of kinds": _scaled,
    "status of kinds": _told,
}
"""{name in a manifest: selection}"""


def _rules(verbs: str, selected: Selected) -> list[str]:
    lines = []
    for group, versions, resources in selected:
        lines.append(f"- apiGroups: [{group}]")
        asked = f"resources: [{', '.join(map(_plain, resources))}]"
        if verbs.isupper():
            served = f"apiVersions: [{', '.join(map(_plain, versions))}]"
            lines += [f"  {served}", f"  operations: [{verbs}]", f"  {asked}", '  scope: "*"']
        else:
            lines += [f"  {asked}", f"  verbs: [{verbs}]"]
    return lines


def _plain(text: str) -> str:
    return f'"{text}"' if text.startswith("*") else text


# --- lists in expressions ---------------------------------------------------------------------------------------------


def _lists(kinds: Kinds) -> dict[tuple[str, str], list[str]]:
    """{(pattern before a list, pattern behind the list): content}"""
    rows = kinds.values()
    return {
        ("", r"(?=\.exists\(pair,)"): [
            f"{_group_kind(row)}>{part}" for row in rows for part in (*row.children, *row.auxiliary)
        ],
        (r"(?<=owner\.kind in )", ""): [_group_kind(row) for row in rows],
        (r"(?<=owner\.apiVersion\.split\('/'\)\[0\] in )", ""): _groups(kinds),
        (r"(?<=request\.resource\.group in )", ""): _groups(
            {name: row for name, row in kinds.items() if row.suspend.annotation}
        ),
    }


def _group_kind(row: Kind) -> str:
    return f"{row.resource.group}/{row.resource.kind}"


def _groups(kinds: Kinds) -> list[str]:
    return list(dict.fromkeys(row.resource.group for row in kinds.values()))


def _with_list(text: str, pattern: re.Pattern[str], items: list[str]) -> str:
    """A text in which every list that a pattern finds has these items; a list is wrapped where the line would be too
    long.
    """

    def made(match: re.Match[str]) -> str:
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        quoted = ", ".join(f"'{item}'" for item in items)
        rest = text[match.end() : text.find("\n", match.end())]
        if len(line) + len(quoted) + len(rest) + 2 <= WIDTH:
            return f"[{quoted}]"
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        wrapped = textwrap.fill(quoted, WIDTH, initial_indent=indent, subsequent_indent=indent)
        return f"[\n{wrapped}\n{indent[2:]}]"

    return pattern.sub(made, text)
