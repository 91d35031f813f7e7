"""Help of the commands that read a log: explain it, decide it again, ask what if."""

from __future__ import annotations

from muster_cli.page import Page

READING: tuple[Page, ...] = (
    Page(
        name="why",
        function="why",
        order=25,
        summary="Tell why a job waits, or what became of it.",
        details="First where it stands now, with numbers; then everything that happened to it, from the log, so also "
        "for jobs that are long gone. With --at it is told as of that sequence or time, whatever came later. JOB is "
        "NAMESPACE/NAME, or NAME where that is unique; or the name of a gang of pods, or of a pod of one.",
        examples="""
muster why video/rayjob-video-h4x2q
muster why rayjob-video-h4x2q --all           with every small step
muster why video/rayjob-video-h4x2q -o json
muster why video/old-job --log archive.jsonl.gz
muster why video/tf-smoke-gpu-worker-0         why is this pod pending?
muster why video/train --at 2026-03-01T09:00:00Z     why did it wait then?
""",
    ),
    Page(
        name="position",
        function="position",
        order=26,
        summary="Tell where a job stands in its queue, and how long it may still take.",
        details="The estimate rests on this queue's own past: how long as many admissions in a row took while somebody "
        "waited, the median and the span that held 8 of 10 of them. With too little past there is none, and it says "
        "so. How it is made, and when not to believe it: docs/howto/waiting.md.",
        examples="""
muster position video/rayjob-video-h4x2q
muster position video/train -o json
muster position video/train --log archive --at 2026-03-01T09:00:00Z
""",
    ),
    Page(
        name="story",
        function="story",
        order=27,
        summary="Tell what happened in a queue: in numbers, who waits and why, then line by line.",
        details="QUEUE is a path of the quota tree, or the end of one that is unique; what is below it counts too.",
        examples="""
muster story root/algorithm/video
muster story video --from 2026-03-01T00:00:00Z --until 2026-03-02T00:00:00Z
muster story video --log archive -o json
""",
    ),
    Page(
        name="tail",
        function="tail",
        order=30,
        summary="Print the log as readable lines, one per event, and go on as it grows.",
        details="Each line begins with the sequence of its commit: give it to --since to go on from there.",
        examples="""
muster tail
muster tail --queue root/algorithm --job video/rayjob-video-h4x2q
muster tail --since 1 --no-follow             the whole log
muster tail -o json | jq .event.type
""",
    ),
    Page(
        name="export",
        function="export",
        order=50,
        summary="Copy a log to a file, one commit per line, or to an archive of compressed segments.",
        details="What it writes is read by every command that takes --log. A file is written under another name first: "
        "an export that breaks off leaves nothing behind. An archive (--segments) is gone on with where it ends, so "
        "exporting again adds what is new; its manifest names the log, its generation, and each segment with its "
        "sequences and its sha256, and `muster import` brings it back.",
        examples="""
muster export --out log.jsonl.gz
muster export --data ./demo --out log.jsonl   of a demo that is not running
muster export --segments archive              again and again: only what is new is written
muster export --url nats://nats.muster:4222 --segments archive
""",
    ),
    Page(
        name="import",
        function="import_log",
        file="import_log",
        order=52,
        summary="Bring an archived log back, into an empty stream.",
        details="Stores the very bytes at the very sequences, and puts the log in force when all of it is there. "
        "Refused where the cell has another log or the stream exists. To look at an old log it need not be imported: "
        "`muster why`, `muster replay` and the others read an archive as it is. Services that are started on an "
        "imported log go on from its end: import a log that is in force elsewhere only to look at it.",
        examples="""
muster import --segments archive --cell old   beside the log of the cell in force
muster import --segments archive --url nats://nats.muster:4222 --replicas 3
""",
    ),
    Page(
        name="replay",
        function="replay",
        order=55,
        summary="Decide a log again and compare every decision, byte for byte; print the state at any position.",
        details="Nothing is written anywhere, and nothing could be: a replay has no way to a cluster. Ends with "
        "`N commits, 0 divergent` and exit code 0; otherwise it shows the first decision that differs, as recorded and "
        "as decided now, and where the state after both differs, and ends with exit code 5. Positions are sequences "
        "or times (UTC unless said). With --until it prints what the cell, or one stage, knew there.",
        examples="""
muster replay --log log.jsonl.gz
muster replay --log log.jsonl.gz --verify     also where nobody decided anything
muster replay --nats nats://nats.muster:4222 --stage queue_sorter
muster replay --log archive --from 120000     judges only what was decided from there on
muster replay --log log.jsonl.gz --until 2026-03-01T12:00:00Z
muster replay --log log.jsonl.gz --until 40 --stage quota_accountant -o json
""",
    ),
    Page(
        name="debug",
        function="debug",
        order=57,
        summary="Step one decision of one stage: what it had folded, its state, and what it decides there now.",
        details="Where the log has a decision of the stage it is decided again, and compared; anywhere else it says "
        "what the stage would decide there. Exit code 5 when it decides otherwise than was recorded.",
        examples="""
muster debug quota_accountant --log log.jsonl.gz --at 40
muster debug queue_sorter --log log.jsonl.gz --at 40 --state     all of its state
muster debug queue_sorter --log log.jsonl.gz --at 40 -o json
""",
    ),
    Page(
        name="check",
        function="check",
        order=60,
        summary="Audit a recorded log: what must hold at every position, by books of its own.",
        details="Shows how often each invariant was checked and broken, and which are not checked here and why. Exit "
        "code 5 when one is broken.",
        examples="""
muster check --log log.jsonl.gz
muster check --log log.jsonl.gz -o json
""",
    ),
    Page(
        name="simulate",
        function="simulate",
        order=65,
        summary="Run a job trace through the scheduler in virtual time, and measure what comes of it.",
        details="CLUSTER is a JSON file of nodes and queues, JOBS a CSV file with the columns job_id, queue, gpus, "
        "submit_s, duration_s and, where wanted, priority, cpu_milli, memory_mib, gpu_milli, min_member, preemptible. "
        "Node and pod lists of the openb trace are taken as they are.\n\n"
        "Policy `muster` runs the real stages through the log; the others are a small engine of its own to compare "
        "with. DIR gets events.jsonl (every commit, for `muster replay` and `muster check`), jobs.csv, summary.json "
        "and report.html. What the figures mean: docs/reference/simulation.md.\n\n"
        'CLUSTER looks like {"nodes": [{"count": 56, "gpus": 8}], "queues": {"vision": {"min": 64, "max": 448}, '
        '"text": {"min": 128, "weight": 2}}}; amounts are GPUs, or objects per resource; queues may have children. '
        'FAULTS looks like {"faults": [{"kind": "node_loss", "at_s": 3600, "for_s": 900, "nodes": 2}, '
        '{"kind": "api_outage", "at_s": 7200, "for_s": 60}]}.',
        examples="""
muster simulate --cluster cluster.json --jobs jobs.csv --out result
muster simulate --cluster cluster.json --jobs jobs.csv --policy all --out table
muster simulate --cluster cluster.json --jobs jobs.csv --policy kueue-like --checkpoint-s 600 --out ckpt
muster simulate --cluster cluster.json --jobs jobs.csv --faults faults.json --seed 7 --out faults
muster simulate --cluster openb_nodes.csv --jobs openb_pods_default.csv --out openb
""",
    ),
    Page(
        name="whatif",
        function="whatif",
        order=66,
        summary="Run a recorded past again with something changed, and tell who would have started when.",
        details="Takes the jobs of a log, when they came and how long they ran, and runs them twice through the real "
        "stages in virtual time: as it was, and with the change. What is compared are these two runs, so that nothing "
        "but the change makes a difference. Several options together are one change. With --from and --until it is a "
        "window of the past; both the same is a snapshot, to which nobody comes. Jobs that had not ended run on for "
        "ever. Nothing is written anywhere.",
        examples="""
muster whatif --log log.jsonl.gz --tree quota-tree.yaml
muster whatif --log log.jsonl.gz --priority video/job-7=100 --priority text/job-3=0
muster whatif --log log.jsonl.gz --rule reclaim=disabled --policy root/algorithm/video=Block
muster whatif --log log.jsonl.gz --add-nodes 2xnvidia.com/gpu=8,cpu=96 --drop-node node-3
muster whatif --from 2026-03-01T00:00:00Z --until 2026-03-02T00:00:00Z --tree quota-tree.yaml
muster whatif --log log.jsonl.gz --tree quota-tree.yaml -o json
""",
    ),
    Page(
        name="diff",
        function="diff",
        order=67,
        summary="Compare what two logs lead to, or one under other rules, and show the first decision that differs.",
        details="Takes only what came from outside from both logs (objects seen, writes carried out, time), and has "
        "this build decide all of it again, each stage at once after every input: what raced when they were recorded "
        "makes no difference. Uids, versions and times of day do not count. With --rule or --ruleset the second side "
        "is decided under those, and may be the same log. Exit code 5 when something differs.",
        examples="""
muster diff before.jsonl.gz after.jsonl.gz
muster diff log.jsonl.gz --rule reclaim=disabled
muster diff result-a/events.jsonl result-b/events.jsonl
""",
    ),
)
