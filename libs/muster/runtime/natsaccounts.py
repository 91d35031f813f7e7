"""The accounts and permissions of a production NATS: who may say what, derived from what the code says.

``python -m muster.runtime.natsaccounts`` writes ``deploy/nats/accounts.conf``; with options, for other cells, later
generations and other readers, to standard output. Permissions stand here once; the servers enforce them.

A service may append where its own stage appends, hold its own lease, keep its own snapshots, and read the log.
Nobody but ``admin`` makes or removes a stream. What a service could still do to another is to spoil its snapshots,
which costs that one a longer start, and to end its readers of the log, which begin again. Readers outside have an
account of their own, EXPORT: each a durable consumer of its own name on the public stream, and nothing else.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from muster.core.deciders import DECIDERS
from muster.events import subjects

ACCOUNTS_FILE = "deploy/nats/accounts.conf"
GENERATIONS = tuple(range(1, 9))
"""Generations of the log the services may read: the one in force, those before it, and those that will follow."""

AHEAD = 7
"""How many generations after the one in force may follow before the accounts must be written again."""

API = "$JS.API"
EXPORTED_API = "$JS.MUSTER.API"
"""The prefix under which readers outside find the JetStream API; every NATS client can be told one."""

APPENDERS: dict[str, tuple[str, ...]] = {
    "watcher": ("watcher",),
    **{stage: (stage,) for stage in DECIDERS},
    "actuator": ("actuator",),
}
"""{service: the stages it appends as}"""

KEEPERS: dict[str, tuple[str, ...]] = {
    **APPENDERS,
    "actuator": ("actuator", "presenter"),
    "publisher": ("publisher",),
    "keeper": ("keeper",),
}
"""{service: the stages whose lease it holds and whose snapshots it keeps}"""

QUARANTINERS = ("watcher",)
"""Services that put aside what they cannot read."""


class User(Struct, frozen=True):
    """A user of a server: the name of the setting that holds its public key, and what it may do."""

    name: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]

    @property
    def key(self) -> str:
        return nkey_setting(self.name)


def nkey_setting(user: str) -> str:
    """``quota_accountant`` -> ``MUSTER_NKEY_QUOTA_ACCOUNTANT``: the setting that holds a user's public key."""
    return f"MUSTER_NKEY_{user.upper().replace('-', '_')}"


def inbox(user: str) -> str:
    """The inbox prefix of a user: nats_inbox_prefix in its configuration."""
    return f"_INBOX_{user}"


def muster_users(cell: str, generations: Sequence[int]) -> list[User]:
    """The users of account MUSTER."""
    users = [_service(name, cell, generations) for name in KEEPERS]
    return [*users, _onlooker(cell, generations), _admin(cell)]


def readers(namespaces: Mapping[str, str], cell: str) -> list[User]:
    """The users of account EXPORT: {name: the only namespace it may read about, empty for all}."""
    return [_reader(name, namespace, cell) for name, namespace in namespaces.items()]


def _reading(cell: str, generations: Sequence[int]) -> Iterator[str]:
    """What everybody who follows the log may ask."""
    state, lease = f"KV_{subjects.state_bucket(cell)}", f"KV_{subjects.lease_bucket(cell)}"
    for stream in (state, lease):
        yield f"{API}.STREAM.INFO.{stream}"
        yield f"{API}.STREAM.MSG.GET.{stream}"
    for stream in (f"OBJ_{subjects.snapshot_bucket(cell)}", subjects.quarantine_stream(cell), subjects.PUBLIC_STREAM):
        yield f"{API}.STREAM.INFO.{stream}"
    for generation in generations:
        stream = subjects.log_stream(cell, generation)
        yield f"{API}.STREAM.INFO.{stream}"
        yield f"{API}.STREAM.MSG.GET.{stream}"
        yield f"{API}.CONSUMER.CREATE.{stream}.*"
        yield f"{API}.CONSUMER.MSG.NEXT.{stream}.*"
        yield f"{API}.CONSUMER.DELETE.{stream}.*"


def _service(name: str, cell: str, generations: Sequence[int]) -> User:
    own = [subjects.stage_subjects(cell, stage) for stage in APPENDERS.get(name, ())]
    own += [f"$KV.{subjects.lease_bucket(cell)}.{stage}.*" for stage in KEEPERS[name]]
    own += [f"$KV.{subjects.lease_bucket(cell)}.replica.{stage}.*.*" for stage in KEEPERS[name]]
    if name in QUARANTINERS:
        own.append(subjects.quarantine_subject(cell, name))
    if name == "publisher":
        own += [subjects.public_cell_subjects(cell), f"{API}.STREAM.MSG.GET.{subjects.PUBLIC_STREAM}"]
    else:
        bucket = subjects.snapshot_bucket(cell)
        own += [f"$KV.{subjects.state_bucket(cell)}.snapshot.{stage}.*" for stage in KEEPERS[name]]
        own += [f"$O.{bucket}.C.*", f"$O.{bucket}.M.*"]
        own += [f"{API}.STREAM.MSG.GET.OBJ_{bucket}", f"{API}.STREAM.PURGE.OBJ_{bucket}"]
    if name == "keeper":
        own += [subjects.stage_subjects(cell, "genesis"), f"$KV.{subjects.state_bucket(cell)}.log"]
        for generation in (*generations, generations[-1] + 1):
            own += [f"{API}.STREAM.{verb}.{subjects.log_stream(cell, generation)}" for verb in ("CREATE", "UPDATE")]
    return User(name, (*own, *_reading(cell, generations)), (f"{inbox(name)}.>",))


def _onlooker(cell: str, generations: Sequence[int]) -> User:
    """Whoever reads the log with the command line."""
    return User("cli", tuple(_reading(cell, generations)), (f"{inbox('cli')}.>",))


def _admin(cell: str) -> User:
    """Whoever runs ``muster log init`` and looks after the streams: founds generations, decides nothing."""
    founding = (subjects.stage_subjects(cell, "genesis"), f"$KV.{subjects.state_bucket(cell)}.log")
    return User("admin", (f"{API}.>", *founding), (f"{inbox('admin')}.>",))


def _reader(name: str, namespace: str, cell: str) -> User:
    stream, api = subjects.PUBLIC_STREAM, EXPORTED_API
    readable = subjects.public_namespace_subjects(cell, namespace) if namespace else subjects.PUBLIC_SUBJECTS
    consumer = f"{api}.CONSUMER.CREATE.{stream}.{name}"
    publish = [
        f"{api}.STREAM.INFO.{stream}",
        # The filter is part of the subject a consumer is created on, and the server compares the two.
        f"{consumer}.{readable}",
        f"{api}.CONSUMER.INFO.{stream}.{name}",
        f"{api}.CONSUMER.MSG.NEXT.{stream}.{name}",
        f"$JS.ACK.{stream}.{name}.>",
    ]
    if not namespace:
        publish.insert(1, consumer)
    return User(name, tuple(publish), (f"{inbox(name)}.>", readable))


EXPORTS = ("STREAM.INFO.{}", "CONSUMER.CREATE.{}.>", "CONSUMER.INFO.{}.*", "CONSUMER.MSG.NEXT.{}.*")
"""What of the JetStream API account EXPORT may call, for the public stream alone."""


def render(cell: str, generations: Sequence[int], namespaces: Mapping[str, str]) -> str:
    """The accounts as a part of a nats-server configuration."""
    stream = subjects.PUBLIC_STREAM
    calls = [operation.format(stream) for operation in EXPORTS]
    lines = [
        "# Generated by `python -m muster.runtime.natsaccounts`; do not edit. What the permissions mean stands there.",
        f"# Cell {cell}; generations {', '.join(map(str, generations))} of its log.",
        '# Every $MUSTER_NKEY_... is the public key of a user, from keys.conf: MUSTER_NKEY_WATCHER: "U..."',
        'include "keys.conf"',
        "accounts {",
        "  MUSTER {",
        "    jetstream: enabled",
        "    users: [",
        *_users(muster_users(cell, generations)),
        "    ]",
        "    exports: [",
    ]
    for call in calls:
        many = ", response_type: stream" if "MSG.NEXT" in call else ""
        lines.append(f'      {{ service: "{API}.{call}"{many}, accounts: [EXPORT] }}')
    lines += [
        f'      {{ service: "$JS.ACK.{stream}.>", accounts: [EXPORT] }}',
        f'      {{ stream: "{subjects.PUBLIC_SUBJECTS}", accounts: [EXPORT] }}',
        "    ]",
        "  }",
        "  EXPORT {",
        "    users: [",
        *_users(readers(namespaces, cell)),
        "    ]",
        "    imports: [",
    ]
    for call in calls:
        source = f'{{ account: MUSTER, subject: "{API}.{call}" }}'
        lines.append(f'      {{ service: {source}, to: "{EXPORTED_API}.{call}" }}')
    lines += [
        f'      {{ service: {{ account: MUSTER, subject: "$JS.ACK.{stream}.>" }} }}',
        f'      {{ stream: {{ account: MUSTER, subject: "{subjects.PUBLIC_SUBJECTS}" }} }}',
        "    ]",
        "  }",
        "  SYS {",
        f"    users: [ {{ nkey: ${nkey_setting('system')} }} ]",
        "  }",
        "}",
        "system_account: SYS",
    ]
    return "\n".join(lines) + "\n"


def _users(users: Sequence[User]) -> Iterator[str]:
    for user in users:
        yield f"      {{ nkey: ${user.key}, permissions: {{"
        for verb, allowed in (("publish", user.publish), ("subscribe", user.subscribe)):
            yield f"        {verb}: {{ allow: ["
            yield from (f'          "{subject}"' for subject in allowed)
            yield "        ] }"
        yield "      } }"


def main(arguments: Sequence[str]) -> None:
    """Write the file of the repository, or print what the options ask for."""
    parser = argparse.ArgumentParser(prog="python -m muster.runtime.natsaccounts", description=__doc__)
    parser.add_argument("--cell", type=subjects.check_cell, help="the cell, default main")
    parser.add_argument("--generation", type=int, help="generation of the log in force; it and the next are readable")
    parser.add_argument(
        "--reader", action="append", metavar="NAME[=NAMESPACE]", help="a reader outside, of one namespace or of all"
    )
    given = parser.parse_args(arguments)
    if not arguments:
        Path(ACCOUNTS_FILE).write_text(default())
        return
    first = given.generation or GENERATIONS[0]
    wanted = [name.partition("=") for name in given.reader or ["reader"]]
    namespaces = {name: namespace for name, _, namespace in wanted}
    sys.stdout.write(
        render(given.cell or subjects.DEFAULT_CELL, tuple(range(max(1, first - 1), first + AHEAD)), namespaces)
    )


def default() -> str:
    """What stands in the repository."""
    return render(subjects.DEFAULT_CELL, GENERATIONS, {"reader": ""})


if __name__ == "__main__":
    main(sys.argv[1:])
