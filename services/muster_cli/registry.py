"""Every command with its help, one row for each. Nothing is imported here, so that ``muster --help`` is quick.

A command is one module of ``muster_cli.commands``. The module explains the options, next to the code of the options.
"""

from __future__ import annotations

from dataclasses import dataclass

from muster.model.language import say
from muster_cli.exits import for_help
from muster_cli.logpages import LOG
from muster_cli.page import Page, indented
from muster_cli.readingpages import READING


@dataclass(frozen=True)
class Root(Page):
    """The page of ``muster`` itself."""

    @property
    def epilogue(self) -> str:
        return f"{say('Start here:')}\n{indented(self.examples)}\n\n{say('Exit codes:')}\n{for_help()}"


ROOT = Root(
    name="muster",
    summary="Muster decides which job runs next on a shared Kubernetes cluster, on what, and why.",
    details="Every decision is an event in one ordered log. These commands run Muster, read and explain that log, "
    "replay its decisions, and change jobs and queues. `muster COMMAND --help` shows examples.",
    examples="""
muster up                     all of Muster on this machine, with a dashboard and a fake cluster
muster why video/JOB          why a job waits, and its history
muster up --context NAME      watch a real cluster, and show what Muster would do there
""",
)

GROUPS: dict[str, Page] = {
    "queue": Page(
        name="queue",
        summary="Look at queues and quota.",
        details="",
        examples="""
muster queue tree             every quota: in use, guaranteed, allowed
muster queue ls               every queue: jobs waiting and running, and why the first one waits
""",
        order=40,
    ),
    "quota": Page(
        name="quota",
        summary="Check a quota tree before it is applied.",
        details="",
        examples="""
muster quota lint tree.yaml   every rule that it breaks
muster quota diff tree.yaml   what it changes, and for which jobs
muster quota shares --queues queues.yaml   how much each queue gets
""",
        order=45,
    ),
    "kinds": Page(
        name="kinds",
        summary="Have Muster queue kinds of your own.",
        details="",
        examples="""
muster kinds lint widget.yaml     whether a definition is understood
muster kinds render widget.yaml   the rights, policies and subjects that it needs
""",
        order=47,
    ),
    "log": Page(
        name="log",
        summary="Create and inspect the log of a cell.",
        details="The log is a JetStream stream. Everything Muster knows and decides is in it.",
        examples="""
muster log info               its length, its size, and the leader of each stage
muster log verify             read all of it, and check that it is complete
""",
        order=80,
    ),
    "cell": Page(
        name="cell",
        summary="Say which cluster a cell belongs to.",
        details="",
        examples="""
muster cell move --context NAME       give the cell to another cluster
""",
        order=82,
    ),
    "nats": Page(
        name="nats",
        summary="Prepare a NATS with users.",
        details="",
        examples="""
muster nats keys              a key for every service, as Secrets
""",
        order=85,
    ),
    "config": Page(
        name="config",
        summary="Look at the settings in force.",
        details="",
        examples="""
muster config show            every setting, its value and its source
""",
        order=90,
    ),
}

_COMMANDS: tuple[Page, ...] = (
    Page(
        name="up",
        function="up",
        order=10,
        summary="Run all of Muster in this terminal: to try it, or to watch a real cluster.",
        details="Starts a real nats-server on loopback, every service in one process, and a fake cluster of 3 nodes "
        "with the quota tree and the two RayJobs of the tutorial. Prints what happens until Ctrl-C.\n\n"
        "With --context it watches that cluster and only shows what it would admit; it writes nothing there. With "
        "--act it also acts there, unless `muster doctor` finds a problem.",
        examples="""
muster up
muster up --speed 5 --no-jobs
muster up --data ./demo               keep the log and the cluster; the next run continues them
muster up --headless --duration 20    for scripts: fails unless a job was admitted
muster up --context prod              what would Muster do on that cluster?
""",
    ),
    Page(
        name="run",
        function="run",
        order=12,
        summary="Run services of a Muster on a cluster, one or several in one process.",
        details="Services are watcher, quota_accountant, queue_sorter, gang_admitter, preemptor, autoscaler_bridge, "
        "actuator, publisher, gateway and keeper; `deciders` names the five that decide, `all` names all but the "
        "keeper, which has a volume and rights of its own. Services of one process share one reader of the log. Each "
        "stage keeps its own lease, subject and commits, so the log is the same in every layout. When one of them ends "
        "for a restart, all of its process are started again.\n\n"
        "Variables MUSTER_... configure them. A NATS with users has a user for each service, and users `deciders` and "
        "`all`, which may do what their services may (`muster nats keys --layout`). `muster up` runs all of it without "
        "any set-up.",
        examples="""
muster run queue_sorter,quota_accountant
muster run deciders
muster run keeper             rolls the log over before it is full, and keeps its archive
""",
    ),
    Page(
        name="nats keys",
        function="nats_keys",
        order=10,
        summary="Make a key for every user of NATS, and print them as Secrets and a ConfigMap.",
        details="Each service signs in to NATS with its own key and may do what it needs and no more. The seed of a "
        "service is Secret muster-nats-SERVICE; the public keys are ConfigMap muster-nats-keys, for the servers. "
        "Nothing is stored by this command. Without --keys all keys are new: restart NATS, then the services.\n\n"
        "--layout names which services share a process; a process of several has one user, `deciders` or `all`. Users "
        "of other layouts get no seed. For another layout later: --keys with --rotate deciders.\n\n"
        "With --keys the keys of that keys.conf stay, and keys that are missing are made. --rotate gives a user a new "
        "key beside the one it has, --retire ends the one it had before: docs/howto/rotate-keys.md.",
        examples="""
muster nats keys
muster nats keys --layout all                         for deploy/install-small.yaml
muster nats keys --keys keys.conf --rotate watcher    a new key; the servers accept both
muster nats keys --keys keys.conf --retire watcher    the key before it ends
""",
    ),
    Page(
        name="down",
        function="down",
        order=15,
        summary="Stop every `muster up` of yours on this machine.",
        details="Works like Ctrl-C in their terminals. Data kept with --data stays.",
        examples="""
muster down
""",
    ),
    Page(
        name="submit",
        function="submit",
        order=20,
        summary="Create the objects of a YAML file in the cluster of the running demo.",
        details="The file may have several documents, lists and `generateName`. For a real cluster, name it with "
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
        summary="Show the quota tree: what every node uses, its guarantee (min) and its limit (max).",
        details="The length of a bar is the max of the node, its filled part is in use, and the mark is the min. "
        "Resources that the tree does not limit at a node have no bar.",
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
        summary="List the queues: how many jobs wait and run, and why the first one waits.",
        details="",
        examples="""
muster queue ls
muster queue ls --all                         also the inner nodes of the tree, which have no queue
muster queue ls -o json
muster queue ls --log archive --at -2h          as it was two hours ago
""",
    ),
    Page(
        name="priority",
        function="priority",
        order=41,
        summary="Change the priority of a job.",
        details="Takes effect at once: a waiting job moves in its queue; of running jobs, the lowest priority is "
        "evicted first. The job keeps the priority, your name and the reason in annotations (muster.dev/priority), "
        "which override the priority of its pod template. Where the policies are applied you need verb `set-priority` "
        "on queues.queues.muster.dev in the namespace of the job.",
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
        details="Sets its priority to one above the highest priority that waits in its queue, as `muster priority` "
        "does. It starts next in its queue, as soon as it fits; no running job is evicted for it. Where the policies "
        "are applied you need verb `jump` or `set-priority` on queues.queues.muster.dev in the namespace of the job.",
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
        details="The job stays suspended and keeps its place: the time when it was first queued. A running job is not "
        "affected until it would be queued again. Any user with the right to change the job may hold it.",
        examples="""
muster hold video/train --reason "waits for its data"
""",
    ),
    Page(
        name="release",
        function="release",
        order=44,
        summary="Let a held job queue again.",
        details="Undoes `muster hold`. The job is queued again, in the order of its queue. To release a job that "
        "another user holds you need verb `hold` on queues.queues.muster.dev in its namespace, where the policies are "
        "applied.",
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
        details="While admissions are paused, no job starts, and running jobs go on. While evictions are paused, no "
        "job is suspended for another. `muster why`, `muster queue tree` and `muster queue ls` show the pause, its "
        "author and its reason.",
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
        details="Reclaim is off on a cluster where jobs that Muster had not admitted were running when it first saw "
        "the cluster. `muster resume evictions` turns it on, by annotation muster.dev/reclaim on the quota tree.",
        examples="""
muster resume admissions --reason "maintenance is over"
muster resume evictions --queue root/algorithm/video
""",
    ),
    Page(
        name="quota lint",
        function="quota_lint",
        order=10,
        summary="Check a quota tree in a file by every rule it must keep.",
        details="Lists every broken rule with the path of its node, and warns of unusual values. Needs no "
        "server. Exit code 5 when a rule is broken: the whole tree would be refused.",
        examples="""
muster quota lint tree.yaml
muster quota lint tree.yaml -o json
""",
    ),
    Page(
        name="quota flavors",
        function="quota_flavors",
        order=25,
        summary="Print ResourceFlavor objects of Kueue as flavors of a quota tree.",
        details="Prints the value of annotation muster.dev/flavors, from the objects in a file, in their order, or "
        "from those of the cluster, by name. Nothing is written. Jobs try types in the order of the value, and a "
        "type without resources counts nvidia.com/gpu. `muster doctor` tells which flavors of the tree in force "
        "differ from the objects of the cluster.",
        examples="""
muster quota flavors flavors.yaml
muster quota flavors --context prod -o yaml
""",
    ),
    Page(
        name="kinds lint",
        function="kinds_lint",
        order=10,
        summary="Check definitions of kinds.",
        details="Takes files with one definition each, or a ConfigMap of definitions. Needs no server. Exit code 5 "
        "when a definition is not understood, with the field and the way out.",
        examples="""
muster kinds lint widget.yaml
""",
    ),
    Page(
        name="kinds render",
        function="kinds_render",
        order=20,
        summary="Print what kinds of your own need in the cluster.",
        details="Prints ConfigMap muster-kinds with the definitions, the account of each controller, the rights of the "
        "watcher and of the actuator, and the policies whose lists of kinds change; comments name subjects of NATS. "
        "Give all kinds of your own at once: the ConfigMap holds them all. Needs no server.",
        examples="""
muster kinds render widget.yaml
muster kinds render widget.yaml gadget.yaml --policies deploy/policies
""",
    ),
    Page(
        name="quota shares",
        function="quota_shares",
        order=30,
        summary="Divide what there is among queues in a file, and say why each gets what it gets.",
        details="Takes KAI Queues, an ElasticQuotaTree, or a table {total, queues: [{name, parent, quota, request, "
        "weight, priority, limit, usage}], k}, in which an amount is a number or one for each resource. What is left "
        "out: quota 0, weight 1, priority 100, no limit, and a request for all a queue can get. A queue that cannot be "
        "used disables itself and what is below it, and is listed with the reason. Needs neither a cluster nor a log.",
        examples="""
muster quota shares --queues queues.yaml --total gpu=8,cpu=64000,memory=512000
muster quota shares --queues queues.yaml --total gpu=8 --request team-a=gpu=2 -o json
echo '{"total": 7, "queues": [{"name": "a"}, {"name": "b"}]}' | muster quota shares --queues -
""",
    ),
    Page(
        name="quota diff",
        function="quota_diff",
        order=20,
        summary="Compare a quota tree in a file with the one in force, and show its effect now.",
        details="Shows nodes that are added, removed and changed; queues that would be over their new max; and waiting "
        "jobs that would fit at once, would not fit any more, or could never fit. Each job is judged alone, as of now. "
        "To run the past under the other tree, use `muster whatif`. Nothing is written.",
        examples="""
muster quota diff tree.yaml
muster quota diff tree.yaml -o json
""",
    ),
    Page(
        name="uninstall",
        function="uninstall",
        order=92,
        summary="Remove the objects that Muster made on a cluster; jobs are not touched.",
        details="Without --yes it only shows what it would do. Lists the waiting jobs, which stay suspended, and the "
        "admitted jobs, which run on. Removes the QueueUnits, Queues and PodGroups that Muster made, and nothing else. "
        "Stop Muster first, or it creates them again.",
        examples="""
muster uninstall --context prod
muster uninstall --context prod --yes
""",
    ),
    Page(
        name="login",
        function="login",
        order=72,
        summary="Fetch the key and the CA with which the command line reads the log of an installed Muster.",
        details="Reads them from the cluster of the kubeconfig, which takes Role muster-system/muster-reader, and "
        "writes a file of settings for MUSTER_CONFIG. User cli reads the log, and changes nothing there.",
        examples="""
muster login --context prod
muster login --context prod --address nats://nats.example.com:4222
""",
    ),
    Page(
        name="doctor",
        function="doctor",
        order=70,
        summary="Find what keeps Muster from working, and say how to fix it.",
        details="Examines NATS (reachable, clocks, size of the log) and the cluster: definitions, permissions, "
        "policies, subjects that may pass by them, quota trees, and other systems that admit the same jobs. "
        "--attack tries to pass by the queue as another user, in dry runs: each attempt should be refused. "
        "The log is that of --url, else of the newest `muster up`; the cluster is that of --context, else the one "
        "of the log. Exit code 1 when there is a problem to fix, 3 when there was nothing to examine. "
        "`muster up --act` refuses by the same list.",
        examples="""
muster doctor
muster doctor --context prod
muster doctor --context prod -o json
muster doctor --context prod --attack --as alice --namespace video
""",
    ),
    Page(
        name="config show",
        function="config_show",
        order=10,
        summary="Show every setting, its value, and its source.",
        details="Settings come from the file named by MUSTER_CONFIG and from variables MUSTER_<SETTING>, which win.",
        examples="""
muster config show
MUSTER_CELL=gpu muster config show -o yaml
""",
    ),
    Page(
        name="completion",
        function="completion",
        order=94,
        summary="Print a script that completes commands and options in your shell.",
        details="Write it to a file that your shell reads; to make it takes a few seconds. `kubectl muster` completes "
        "without a script: kubectl asks `kubectl_complete-muster`, which is installed beside `muster`.",
        examples="""
muster completion bash        write it to ~/.local/share/bash-completion/completions/muster
muster completion zsh         write it to _muster in a folder of fpath
muster completion fish        write it to ~/.config/fish/completions/muster.fish
""",
    ),
    Page(
        name="version",
        function="version",
        order=95,
        summary="Show the versions of Muster and of the programs that it uses.",
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


COMMANDS = tuple(sorted((*_COMMANDS, *LOG, *READING), key=_place))
"""In the order of the documentation."""
