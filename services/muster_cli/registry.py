"""Every command with its help: one row each. Nothing is imported here, so that ``muster --help`` is quick.

A command is one module of ``muster_cli.commands``; options are explained there, next to the code that takes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from muster_cli.exits import for_help
from muster_cli.page import Page, indented
from muster_cli.readingpages import READING


@dataclass(frozen=True)
class Root(Page):
    """The page of ``muster`` itself."""

    @property
    def epilogue(self) -> str:
        return f"Start here:\n{indented(self.examples)}\n\nExit codes:\n{for_help()}"


ROOT = Root(
    name="muster",
    summary="Muster decides which job runs next on a shared Kubernetes cluster, with what, and why.",
    details="Every decision is an event in one ordered log. These commands run Muster, read that log, explain it, and "
    "decide it again. `muster COMMAND --help` shows examples.",
    examples="""
muster up                     a whole Muster on this machine, with a simulated cluster and two jobs
muster why video/JOB          why a job waits, or what became of it
muster up --context NAME      watch a real cluster, and see what Muster would do there
""",
)

GROUPS: dict[str, Page] = {
    "queue": Page(
        name="queue",
        summary="Look at queues and quota.",
        details="",
        examples="""
muster queue tree             who uses how much of which quota
muster queue ls               how many wait where, and why the first one does
""",
        order=40,
    ),
    "quota": Page(
        name="quota",
        summary="Check a quota tree before it is applied.",
        details="",
        examples="""
muster quota lint tree.yaml   every rule it breaks
muster quota diff tree.yaml   what it changes, and for whom
""",
        order=45,
    ),
    "log": Page(
        name="log",
        summary="Create and inspect the log of a cell.",
        details="The log is a JetStream stream. Everything Muster knows and decides is in it.",
        examples="""
muster log info               how long it is, how full, and who leads
muster log verify             read all of it and check that nothing is missing
""",
        order=80,
    ),
    "config": Page(
        name="config",
        summary="Look at the settings in force.",
        details="",
        examples="""
muster config show            every setting, its value and where that comes from
""",
        order=90,
    ),
}

_COMMANDS: tuple[Page, ...] = (
    Page(
        name="up",
        function="up",
        order=10,
        summary="Run a whole Muster in this terminal: to try it, or to watch a real cluster.",
        details="Starts a real nats-server on loopback and every service as it runs in pods, in one process, beside a "
        "simulated cluster of 3 nodes with the quota tree and the two RayJobs of the tutorial; tells what happens as "
        "it happens, until Ctrl-C.\n\n"
        "With --context it watches that cluster and only says what it would admit; nothing is written there. With "
        "--act it decides there, unless `muster doctor` finds something that speaks against it.",
        examples="""
muster up
muster up --speed 5 --no-jobs
muster up --data ./demo               keep the log and the cluster; the next time it goes on from there
muster up --headless --duration 20    for scripts: fails unless a job was admitted
muster up --context prod              what would Muster do on that cluster?
""",
    ),
    Page(
        name="down",
        function="down",
        order=15,
        summary="End every `muster up` of yours on this machine.",
        details="Does what Ctrl-C in their terminals would do. What was kept with --data stays.",
        examples="""
muster down
""",
    ),
    Page(
        name="submit",
        function="submit",
        order=20,
        summary="Create the objects of a YAML file in the cluster of the running demo.",
        details="Takes several documents in one file, `generateName`, and lists. For a real cluster name it, with "
        "--context or --kubeconfig; kubectl does the same.",
        examples="""
muster submit rayjob.yaml
muster submit --times 5 rayjob.yaml           five jobs of a file with generateName
cat rayjob.yaml | muster submit -
muster submit rayjob.yaml --context staging
""",
    ),
    Page(
        name="queue tree",
        function="queue_tree",
        order=10,
        summary="Show the quota tree with what is used, guaranteed and allowed at every node.",
        details="A bar is as long as the node's max; its filled part is in use, the mark is the guaranteed min.",
        examples="""
muster queue tree
muster queue tree --under root/algorithm
muster queue tree -o json
""",
    ),
    Page(
        name="queue ls",
        function="queue_ls",
        order=20,
        summary="List the queues: how many wait and run, and why the first of each waits.",
        details="",
        examples="""
muster queue ls
muster queue ls --all                         also the inner nodes of the tree, where nobody queues
muster queue ls -o json
""",
    ),
    Page(
        name="priority",
        function="priority",
        order=41,
        summary="Give a job another priority.",
        details="Takes effect at once: a waiting job moves in its queue. Of those that run, the lowest gives way "
        "first. It is written on the job itself, as annotation muster.dev/priority, with your name and the reason, and "
        "beats the priority of its pod template. Where policies guard these annotations you need the permission "
        "`admit` on queues.queues.muster.dev in the job's namespace.",
        examples="""
muster priority video/train 100 --reason "demo on Friday"
muster priority tfjob/video/train -5 --reason "can wait"
""",
    ),
    Page(
        name="jump",
        function="jump",
        order=42,
        summary="Put a waiting job first in its queue.",
        details="Gives it a priority one above the highest that waits in its queue, as `muster priority` does. It "
        "starts next in its queue, when there is room for it; nobody is evicted for it.",
        examples="""
muster jump video/train --reason "deadline tonight"
muster jump train --reason "deadline tonight" --context prod
""",
    ),
    Page(
        name="hold",
        function="hold",
        order=43,
        summary="Keep a job out of its queue until it is released.",
        details="It stays suspended, and its place counts from when it was first queued. A job that runs already is "
        "left alone: a hold counts when it would be queued again.",
        examples="""
muster hold video/train --reason "waits for its data"
""",
    ),
    Page(
        name="release",
        function="release",
        order=44,
        summary="Let a held job queue again.",
        details="Takes back `muster hold`. It returns to its old place.",
        examples="""
muster release video/train
muster release video/train --reason "data is there"
""",
    ),
    Page(
        name="pause",
        function="pause",
        order=46,
        summary="Pause evictions or admissions, everywhere or in one queue.",
        details="Admissions paused: nothing starts, whatever is free; what runs runs on. Evictions paused: nothing is "
        "suspended to give quota back to others. `muster why`, `muster queue tree` and `muster queue ls` tell who "
        "paused what, and why.",
        examples="""
muster pause admissions --reason "network maintenance"
muster pause evictions --queue root/algorithm/video --reason "long checkpoint"
""",
    ),
    Page(
        name="resume",
        function="resume",
        order=47,
        summary="Resume evictions or admissions that were paused.",
        details="Nothing is reclaimed on a cluster where jobs that nobody had admitted were running when Muster first "
        "saw it: `muster resume evictions` enables that, by annotation muster.dev/reclaim on the quota tree.",
        examples="""
muster resume admissions
muster resume evictions --queue root/algorithm/video
""",
    ),
    Page(
        name="quota lint",
        function="quota_lint",
        order=10,
        summary="Check a quota tree in a file by every rule it must keep.",
        details="Tells each broken rule with the path of its node, and warns of what is allowed and odd. Asks no "
        "server. Exit code 5 when a rule is broken: the tree would be refused as a whole.",
        examples="""
muster quota lint tree.yaml
muster quota lint tree.yaml -o json
""",
    ),
    Page(
        name="quota diff",
        function="quota_diff",
        order=20,
        summary="Compare a quota tree in a file with the one in force, and tell what it would do now.",
        details="Nodes that come, go and change; then queues that would be over their new max, and waiting jobs that "
        "would find room at once, find it no longer, or never could. Each job is judged by itself, as things stand. "
        "`muster whatif` runs the past under the other tree instead. Nothing is written.",
        examples="""
muster quota diff tree.yaml
muster quota diff tree.yaml -o json
""",
    ),
    Page(
        name="uninstall",
        function="uninstall",
        order=92,
        summary="Take from a cluster what Muster made there, and leave the jobs alone.",
        details="Without --yes it only says what it would do. Lists the jobs that wait, which stay suspended, and "
        "those that were admitted, which run on; removes the QueueUnits, Queues and PodGroups that Muster made, and "
        "nothing else. Stop Muster first: it would make them again.",
        examples="""
muster uninstall --context prod
muster uninstall --context prod --yes
""",
    ),
    Page(
        name="log init",
        function="log_init",
        order=10,
        summary="Create the log of a cell and its streams, or check that they are as they must be.",
        details="Run it once before the services are started. A cell whose stream was lost gets its next generation.",
        examples="""
muster log init --url nats://nats.muster:4222 --replicas 3
muster log init --cell gpu
""",
    ),
    Page(
        name="log info",
        function="log_info",
        order=20,
        summary="Show a log: its generation, size and end, and which process leads which stage.",
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
        summary="Roll a log over: seal this generation, and go on in the next with the state of every stage.",
        details="The services follow by themselves; jobs notice nothing. Sequences go on counting, and commands read "
        "all generations as one log. The keeper does this by itself at MUSTER_LOG_ROLL_PERCENT. A roll-over that "
        "broke off is finished by the keeper, or by running this again.",
        examples="""
muster log roll --reason "before the upgrade of NATS"
muster log roll --complete --url nats://nats.muster:4222
""",
    ),
    Page(
        name="log keep",
        function="log_keep",
        order=27,
        summary="Run the keeper of a log: it rolls the log over when it is getting full, and keeps its archive.",
        details="A service like the others, set up by MUSTER_ variables; it runs until it is told to stop. "
        "MUSTER_LOG_ROLL_PERCENT says when, MUSTER_LOG_ARCHIVE where the archive is. `muster up` has one inside.",
        examples="""
muster log keep
""",
    ),
    Page(
        name="log delete",
        function="log_delete",
        order=32,
        summary="Delete a sealed generation of a log from NATS, once an archive has it.",
        details="Only the oldest that is still there, and only when every byte of it is in the archive, the states "
        "that the next generation begins with are whole and of this version, and the publisher has told outsiders what "
        "is in it. Without --yes it only checks. What is left is read, replayed and exported from its own beginning; "
        "`muster why` and whatever needs the whole log read the archive, with --log.",
        examples="""
muster log delete 1 --archive archive
muster log delete 1 --archive archive --yes --url nats://nats.muster:4222
""",
    ),
    Page(
        name="log prune",
        function="log_prune",
        order=34,
        summary="Delete the oldest sealed generations of a log from NATS, but for some.",
        details="Each as `muster log delete` does, the oldest first; it stops at the first that may not be deleted.",
        examples="""
muster log prune --keep 2 --archive archive
muster log prune --keep 2 --archive archive --yes
""",
    ),
    Page(
        name="log verify",
        function="log_verify",
        order=30,
        summary="Read a whole log and check that it has no holes and every commit can be read.",
        details="Also that it begins with its genesis, and that every commit carries the epoch of its leader. What the "
        "decisions mean is checked by `muster replay` and `muster check`.",
        examples="""
muster log verify
muster log verify --log log.jsonl.gz
""",
    ),
    Page(
        name="doctor",
        function="doctor",
        order=70,
        summary="Say what is missing for Muster to work, and how to mend it.",
        details="Looks at NATS (reachable, clocks, how full the log is) and, with --context or while a demo runs, at "
        "the cluster: definitions, permissions, policies, and whether somebody else admits the same jobs. Exit code 1 "
        "when something must be mended. `muster up --act` refuses by the same list.",
        examples="""
muster doctor
muster doctor --context prod
muster doctor --context prod -o json
""",
    ),
    Page(
        name="config show",
        function="config_show",
        order=10,
        summary="Show every setting, its value, and where that comes from.",
        details="Settings come from the file named by MUSTER_CONFIG and from variables MUSTER_<SETTING>, which win.",
        examples="""
muster config show
MUSTER_CELL=gpu muster config show -o yaml
""",
    ),
    Page(
        name="version",
        function="version",
        order=95,
        summary="Show the version of Muster and of what it runs on.",
        details="",
        examples="""
muster version
muster version -o json
""",
    ),
)


def _place(page: Page) -> tuple[int, int]:
    group = GROUPS.get(page.name.partition(" ")[0])
    return (group.order, page.order) if group is not None else (page.order, 0)


COMMANDS = tuple(sorted((*_COMMANDS, *READING), key=_place))
"""In the order of the documentation."""
