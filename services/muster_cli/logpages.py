"""Help of the commands that make, keep and check the log."""

from __future__ import annotations

from muster_cli.page import Page

LOG: tuple[Page, ...] = (
    Page(
        name="log init",
        function="log_init",
        order=10,
        summary="Create the log of a cell and its streams, or check them.",
        details="Run it once before you start the services. If the stream of a cell was lost, it creates the next "
        "generation.",
        examples="""
muster log init --url nats://nats.muster:4222 --replicas 3
muster log init --cell gpu
""",
    ),
    Page(
        name="cell move",
        function="cell_move",
        order=22,
        summary="Give a cell to another cluster.",
        details="A cell belongs to the cluster that its watcher reached first, known by the uid of namespace "
        "kube-system. A service with the kubeconfig of another cluster reads and writes nothing there. This command "
        "gives the cell to another cluster, and its log starts again from the state of that cluster. Without --yes the "
        "command only says what it would do.",
        examples="""
muster cell move --context new
muster cell move --context new --yes --url nats://nats.muster:4222
""",
    ),
    Page(
        name="log info",
        function="log_info",
        order=20,
        summary="Show a log: its generation, size and end, and the leader of each stage.",
        details="",
        examples="""
muster log info
muster log info --cell gpu -o json
""",
    ),
    Page(
        name="log roll",
        function="log_roll",
        order=25,
        summary="Roll a log over: seal this generation, and continue in the next one.",
        details="The services continue in the next generation; jobs are not affected. Sequences continue, and commands "
        "read all generations as one log. The keeper does this at MUSTER_LOG_ROLL_PERCENT. An interrupted roll-over "
        "is finished by the keeper, or by this command.",
        examples="""
muster log roll --reason "before the upgrade of NATS"
muster log roll --complete --url nats://nats.muster:4222
""",
    ),
    Page(
        name="log delete",
        function="log_delete",
        order=32,
        summary="Delete a sealed generation of a log from NATS, once an archive has it.",
        details="It must be the oldest that is left, every byte of it must be in the archive, the next generation must "
        "begin with complete states of this version, and the publisher must have published its events. Without --yes "
        "the command only checks. The rest of the log is read, replayed and exported from its own beginning; commands "
        "that need the whole log, such as `muster why`, read the archive with --log.",
        examples="""
muster log delete 1 --archive archive
muster log delete 1 --archive archive --yes --url nats://nats.muster:4222
""",
    ),
    Page(
        name="log prune",
        function="log_prune",
        order=34,
        summary="Delete the oldest sealed generations of a log from NATS, except the newest.",
        details="Works like `muster log delete`, the oldest first, and stops at the first generation that must stay.",
        examples="""
muster log prune --keep 2 --archive archive
muster log prune --keep 2 --archive archive --yes
""",
    ),
    Page(
        name="log verify",
        function="log_verify",
        order=30,
        summary="Read a whole log, and check that it has no gaps and that every commit can be read.",
        details="Also checks that it begins with its genesis, and that every commit has the epoch of its leader. "
        "`muster replay` and `muster check` check the decisions.",
        examples="""
muster log verify
muster log verify --log log.jsonl.gz
""",
    ),
    Page(
        name="log voids",
        function="log_voids",
        order=31,
        summary="List the commits of a log that are void, each with the reason.",
        details="A commit is void when its writer had no right to it: another stage's event, an unknown subject, an "
        "epoch that is over, a clock far ahead, another log's past, or bytes that are no commit. Every reader passes "
        "over it. A void commit means that a key is in other hands, or that a program writes where it should not.",
        examples="""
muster log voids
muster log voids --log log.jsonl.gz
""",
    ),
    Page(
        name="log recover",
        function="log_recover",
        order=35,
        summary="Say whether a log lost commits that were read, and start its next generation from the cluster.",
        details="Each process keeps beside the log how far it has read. A log that cannot show that lost its end, and "
        "may have grown over it. The keeper starts the next generation by itself where two processes agree; where one "
        "of several alone says so, a person decides: with --yes that the log lost commits, with --distrust that "
        "the process is wrong, because its key was in other hands. Change that key first (muster nats keys --rotate).",
        examples="""
muster log recover
muster log recover --yes
muster log recover --distrust watcher
""",
    ),
)
