"""The accounts and permissions of a production NATS: which user may publish and subscribe where, derived from the code.

``python -m muster.runtime.natsaccounts`` writes ``deploy/nats/accounts.conf``; with options, for other cells and
other readers, to standard output. The rights of a process follow from the rows of its runners
(:mod:`muster.runtime.opening`); the servers enforce it.

A service may append where its own stage appends, hold its own lease, keep its own snapshots, and read the log.
Only ``admin`` and the keeper make or remove a stream. What a service could still do to another is to end its readers of
the log, which begin again.

Generations of the log come and go, and a subject of NATS has no wildcard for a part of a name: what may be asked of the
log may be asked of every stream of the account that is not denied by name, and those are all the others of the cell.
So the account is for one cell, and for nothing else. The keeper founds generations and deletes those that the archive
has: it may make and remove every stream but the others of the cell.

A server does not compare with any permission where an answer is sent. In the account that has the streams, MUSTER, one
could have it stored in any of them. So no user is in that account: each has one of its own, which imports what the user
may say, and an answer reaches nothing else. Readers outside share account EXPORT: each has a durable consumer of its
own name on the public stream, and nothing else.

A process of several services signs in as a user of its own, which may do what each of them may (``deciders``, ``all``);
where that layout is not chosen, no seed of its key exists. How far a process has read the log it says in its own name:
one key is one witness.

A user has two keys: the one that it signs in with, and the one before it, which the servers accept as long as the
key is being changed (docs/howto/rotate-keys.md). Both may do the same. ``muster.runtime.natskeys`` makes them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from muster.audit.judge import RIGHTS
from muster.bus.cell import POINTER, object_buckets
from muster.bus.connection import API_PREFIX, INBOX
from muster.bus.marks import MARKS
from muster.bus.public import KEPT
from muster.bus.replicas import REPLICA
from muster.bus.servers import REQUESTS
from muster.bus.snapshots import SNAPSHOTS
from muster.bus.vouching import REACHING, SHARD
from muster.events import subjects
from muster.runtime import pairing
from muster.runtime.endings import ENDED
from muster.runtime.layouts import GROUPS, SERVICES
from muster.runtime.opening import RUNNERS, Opening, openings

ACCOUNTS_FILE = "deploy/nats/accounts.conf"
KEYS = "muster-nats-keys"
"""ConfigMap with the public keys."""
OWNER = "MUSTER"
"""The account that has the streams."""
SYSTEM = "SYS"
"""The account in which the servers say how they are, each for itself."""
API = "$JS.MUSTER.API"
"""The JetStream API in every account but the one that has the streams; every NATS client has an option for it."""


def secret_of(service: str) -> str:
    """The Secret with the seed of a service's key."""
    return f"muster-nats-{dashed(service)}"


def dashed(service: str) -> str:
    """A service's name as Kubernetes takes it."""
    return service.replace("_", "-")


class User(Struct, frozen=True):
    """A user of a server: the name of the setting that holds the public key, and the rights of the user."""

    name: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    denied: tuple[str, ...] = ()
    """Subjects that the user may not publish, within a wildcard of ``publish``."""

    @property
    def key(self) -> str:
        return nkey_setting(self.name)

    @property
    def account(self) -> str:
        return account_of(self.name)

    @property
    def imports(self) -> list[str]:
        """The imports of the user's account, without subjects that a wider one covers: these would be sent twice."""
        return [subject for subject in self.publish if not any(_covers(wide, subject) for wide in self.publish)]


def _covers(wide: str, narrow: str) -> bool:
    """Whether what is sent on ``narrow`` goes to another subject too, one with ``*`` for some tokens."""
    same_length = wide.count(".") == narrow.count(".")
    pairs = zip(wide.split("."), narrow.split("."), strict=False)
    return wide != narrow and same_length and all(one in ("*", other) for one, other in pairs)


def _owned(subject: str) -> str:
    """A subject as the account of the streams has it."""
    return f"{API_PREFIX}{subject.removeprefix(API)}" if subject.startswith(API) else subject


def _owner(subject: str) -> str:
    """The account that answers on a subject."""
    return SYSTEM if subject in REQUESTS else OWNER


def account_of(user: str) -> str:
    """The account that a user of Muster has for itself."""
    return f"{OWNER}_{user.upper()}"


def nkey_setting(user: str) -> str:
    """``quota_accountant`` -> ``MUSTER_NKEY_QUOTA_ACCOUNTANT``: the setting that holds a user's public key."""
    return f"MUSTER_NKEY_{user.upper().replace('-', '_')}"


def earlier_setting(user: str) -> str:
    """The setting of the public key that a user had before."""
    return f"{nkey_setting(user)}_BEFORE"


def inbox(user: str) -> str:
    """The inbox prefix of a user: nats_inbox_prefix in its configuration."""
    return f"{INBOX}_{user}"


def muster_users(cell: str) -> list[User]:
    """The users that belong to Muster, each of an account of its own."""
    users = [_process(name, cell) for name in (*SERVICES, *GROUPS)]
    return [*users, _onlooker(cell), _admin(cell)]


def readers(namespaces: Mapping[str, str], cell: str) -> list[User]:
    """The users of account EXPORT: {name: the only namespace it may read about, empty for all}."""
    return [_reader(name, namespace, cell) for name, namespace in namespaces.items()]


OF_THE_LOG = (
    "STREAM.INFO.{}",
    "STREAM.MSG.GET.{}",
    "CONSUMER.CREATE.{}.*",
    "CONSUMER.MSG.NEXT.{}.*",
    "CONSUMER.DELETE.{}.*",
)
"""What may be asked of a generation of the log, whichever it is."""
FOUNDING = ("STREAM.CREATE.{}", "STREAM.UPDATE.{}", "STREAM.DELETE.{}", "STREAM.LEADER.STEPDOWN.{}")
"""What the keeper may ask of one: it founds and deletes generations, and rebuilds a damaged copy of one."""


def _others(cell: str) -> tuple[str, ...]:
    """Every stream of a cell that is no generation of its log."""
    return (
        f"KV_{subjects.state_bucket(cell)}",
        f"KV_{subjects.lease_bucket(cell)}",
        f"KV_{subjects.replica_bucket(cell)}",
        *(f"OBJ_{bucket}" for bucket in object_buckets(cell)),
        subjects.quarantine_stream(cell),
        subjects.PUBLIC_STREAM,
    )


def _user(name: str, cell: str, allowed: Sequence[str], asked: Sequence[str]) -> User:
    """``asked``: of any generation of the log, and so of no other stream; ``allowed``: exactly these subjects."""
    wide = [f"{API}.{operation.format('*')}" for operation in asked]
    narrow = [f"{API}.{operation.format(stream)}" for operation in asked for stream in _others(cell)]
    denied = tuple(subject for subject in narrow if subject not in allowed)
    return User(name, (*allowed, *wide), (f"{inbox(name)}.>",), denied)


def _reading(cell: str) -> Iterator[str]:
    """The requests that every follower of the log may make."""
    for bucket in (subjects.state_bucket(cell), subjects.lease_bucket(cell), subjects.replica_bucket(cell)):
        stream = f"KV_{bucket}"
        yield f"{API}.STREAM.INFO.{stream}"
        yield f"{API}.STREAM.MSG.GET.{stream}"
    buckets = [f"OBJ_{bucket}" for bucket in object_buckets(cell)]
    for stream in (*buckets, subjects.quarantine_stream(cell), subjects.PUBLIC_STREAM):
        yield f"{API}.STREAM.INFO.{stream}"


def _seats(cell: str, stage: str) -> Iterator[str]:
    """Where a stage appends, in any generation: its shards and no other."""
    for seat in RIGHTS:
        if seat.startswith(f"{stage}."):
            yield subjects.seat_subjects(cell, seat)


def _shards(stage: str) -> list[str]:
    """The shards of a stage; one for a runner that is no stage. Named one by one: a bucket has room for these keys."""
    return [seat.partition(".")[2] for seat in RIGHTS if seat.startswith(f"{stage}.")] or ["0"]


def _process(name: str, cell: str) -> User:
    """The user of a process, with the rights of each runner's row, and the right to write the mark and the end of the
    process.
    """
    runners = openings(name).values()
    keys = [f"$KV.{subjects.state_bucket(cell)}.{key}.{name}" for key in (MARKS, ENDED)]
    allowed = [subject for runner in runners for subject in _opened(runner, cell)]
    founding = FOUNDING if any(runner.founds for runner in runners) else ()
    return _user(name, cell, tuple(dict.fromkeys((*allowed, *_reading(cell), *keys))), OF_THE_LOG + founding)


def _opened(opening: Opening, cell: str) -> Iterator[str]:
    """The exact subjects that a runner opens."""
    state, lease = f"$KV.{subjects.state_bucket(cell)}", f"$KV.{subjects.lease_bucket(cell)}"
    if opening.appends:
        yield from _seats(cell, opening.appends)
    if opening.lease:
        yield from (f"{lease}.{opening.lease}.{shard}" for shard in _shards(opening.lease))
    if opening.appends in REACHING:
        yield f"{lease}.{opening.appends}.{SHARD}"
    if opening.announces:
        yield f"$KV.{subjects.replica_bucket(cell)}.{REPLICA}.{opening.appends}.*.*"
    if opening.pairs:
        yield f"{state}.{pairing.KEY}"
    if opening.quarantines:
        yield subjects.quarantine_subject(cell, opening.appends)
    if opening.publishes:
        yield subjects.public_cell_subjects(cell)
        yield f"{API}.STREAM.MSG.GET.{subjects.PUBLIC_STREAM}"
        yield f"{state}.{KEPT}"
    if opening.keeps:
        yield from (f"{state}.{SNAPSHOTS}.{opening.keeps}.{shard}" for shard in _shards(opening.keeps))
        yield from _objects(subjects.snapshot_bucket(cell, opening.keeps))
    if opening.begins:
        buckets = (subjects.base_bucket(cell), *(subjects.snapshot_bucket(cell, stage) for stage in opening.begins))
        yield from (f"{API}.STREAM.MSG.GET.OBJ_{bucket}" for bucket in buckets)
    if opening.founds:
        yield from _founded(cell)
        yield f"{API}.STREAM.MSG.GET.{subjects.PUBLIC_STREAM}"  # What was not published is not deleted.
        yield f"{API}.STREAM.NAMES"  # The newest generation, where the servers forgot which one is in force.
    if opening.asks_servers:
        yield from REQUESTS


def _objects(bucket: str) -> Iterator[str]:
    """Where the objects of a bucket are written and removed."""
    yield from (f"$O.{bucket}.C.*", f"$O.{bucket}.M.*", f"{API}.STREAM.PURGE.OBJ_{bucket}")


def _founded(cell: str) -> Iterator[str]:
    """What is written where a generation of the log begins."""
    yield from _seats(cell, "genesis")
    yield f"$KV.{subjects.state_bucket(cell)}.{POINTER}"
    yield from _objects(subjects.base_bucket(cell))


def _onlooker(cell: str) -> User:
    """A user who reads the log with the command line, which begins from the snapshots of any stage."""
    snapshots = [f"{API}.STREAM.MSG.GET.OBJ_{bucket}" for bucket in object_buckets(cell)]
    return _user("cli", cell, (*snapshots, *_reading(cell), *REQUESTS), OF_THE_LOG)


def _admin(cell: str) -> User:
    """A user who looks after the log: founds it, rolls it over, gives it up, brings an archived one back as it was."""
    state = f"$KV.{subjects.state_bucket(cell)}"
    founded = [subject for subject in _founded(cell) if not subject.startswith(API)]
    brought_back = [subjects.seat_subjects(cell, seat) for seat in RIGHTS]
    own = (f"{state}.{MARKS}.*", f"{state}.{SNAPSHOTS}.*.*", f"{state}.{pairing.KEY}", *REQUESTS)
    allowed = (f"{API}.>", *founded, *brought_back, *own)
    return User("admin", tuple(dict.fromkeys(allowed)), (f"{inbox('admin')}.>",))


def _reader(name: str, namespace: str, cell: str) -> User:
    stream, api = subjects.PUBLIC_STREAM, API
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


def render(cell: str, namespaces: Mapping[str, str]) -> str:
    """The accounts as a part of a nats-server configuration."""
    stream = subjects.PUBLIC_STREAM
    users = muster_users(cell)
    publishing = [user.name for user in users if _publishes(user.name)]
    public = [f"{API}.{operation.format(stream)}" for operation in EXPORTS] + [f"$JS.ACK.{stream}.>"]
    wanted = [subject for user in users for subject in user.imports if _owner(subject) == OWNER]
    shared = dict.fromkeys(wanted) | dict.fromkeys(public)
    lines = [
        "# Generated by `python -m muster.runtime.natsaccounts`; do not edit. The permissions are documented there.",
        f"# Cell {cell}, every generation of its log.",
        '# Every $MUSTER_NKEY_... is a public key of a user, from keys.conf: MUSTER_NKEY_WATCHER: "U...".',
        "# One that ends in _BEFORE is the key that the user had before.",
        'include "keys.conf"',
        "accounts {",
        f"  {OWNER} {{",
        "    jetstream: enabled",
        "    exports: [",
        *(f'      {{ service: "{_owned(subject)}"{_answers(subject)} }}' for subject in shared),
        "    ]",
        "  }",
    ]
    for user in users:
        lines += _account(user.account, [user], user.imports, live=user.name in publishing)
    live = [f'{{ account: {account_of(account)}, subject: "{subjects.PUBLIC_SUBJECTS}" }}' for account in publishing]
    lines += [
        *_account("EXPORT", readers(namespaces, cell), public, *(f"      {{ stream: {stream} }}" for stream in live)),
        f"  {SYSTEM} {{",
        "    exports: [",
        *(f'      {{ service: "{subject}", response_type: stream }}' for subject in REQUESTS),
        "    ]",
        f"    users: [ {{ nkey: ${nkey_setting('system')} }}, {{ nkey: ${earlier_setting('system')} }} ]",
        "  }",
        "}",
        f"system_account: {SYSTEM}",
    ]
    return "\n".join(lines) + "\n"


def _publishes(user: str) -> bool:
    """Whether readers outside see what a user publishes as it is sent."""
    return user in (*RUNNERS, *GROUPS) and any(opening.publishes for opening in openings(user).values())


def _answers(subject: str) -> str:
    """Where one request may have many answers."""
    return ", response_type: stream" if "MSG.NEXT" in subject or subject.endswith("API.>") else ""


def _account(name: str, users: Sequence[User], imports: Sequence[str], *more: str, live: bool = False) -> Iterator[str]:
    yield f"  {name} {{"
    if live:
        yield f'    exports: [ {{ stream: "{subjects.PUBLIC_SUBJECTS}" }} ]'
    for user in users:
        yield from _rights(user)
    yield "    users: ["
    for user in users:
        for setting in (user.key, earlier_setting(user.name)):
            yield f"      {{ nkey: ${setting}, permissions: ${_may(user)} }}"
    yield "    ]"
    yield "    imports: ["
    for subject in imports:
        to = f', to: "{subject}"' if subject != _owned(subject) else ""
        yield f'      {{ service: {{ account: {_owner(subject)}, subject: "{_owned(subject)}" }}{to} }}'
    yield from more
    yield "    ]"
    yield "  }"


def _may(user: User) -> str:
    """The variable that holds the rights of a user, for each of its keys."""
    return f"may_{user.name.replace('-', '_')}"


def _rights(user: User) -> Iterator[str]:
    yield f"    {_may(user)} {{"
    for verb, allowed in (("publish", user.publish), ("subscribe", user.subscribe)):
        yield f"      {verb}: {{ allow: ["
        yield from (f'        "{subject}"' for subject in allowed)
        if verb == "publish" and user.denied:
            yield "      ], deny: ["
            yield from (f'        "{subject}"' for subject in user.denied)
        yield "      ] }"
    yield "    }"


def main(arguments: Sequence[str]) -> None:
    """Write the file of the repository, or print what the options ask for."""
    parser = argparse.ArgumentParser(prog="python -m muster.runtime.natsaccounts", description=__doc__)
    parser.add_argument("--cell", type=subjects.check_cell, help="the cell, default main")
    parser.add_argument(
        "--reader", action="append", metavar="NAME[=NAMESPACE]", help="a reader outside, of one namespace or of all"
    )
    given = parser.parse_args(arguments)
    if not arguments:
        Path(ACCOUNTS_FILE).write_text(default())
        return
    wanted = [name.partition("=") for name in given.reader or ["reader"]]
    namespaces = {name: namespace for name, _, namespace in wanted}
    sys.stdout.write(render(given.cell or subjects.DEFAULT_CELL, namespaces))


def default() -> str:
    """The file in the repository."""
    return render(subjects.DEFAULT_CELL, {"reader": ""})


if __name__ == "__main__":
    main(sys.argv[1:])
