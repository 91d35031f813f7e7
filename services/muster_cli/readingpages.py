"""Help of the commands that read a log: explain the log, decide the log again, ask what if."""

from __future__ import annotations

from muster_cli.page import Page

READING: tuple[Page, ...] = (
    Page(
        name="why",
        function="why",
        order=25,
        summary="Show why a job waits, and its history.",
        details="First the state of the job with numbers, then its history from the log, also for jobs that no longer "
        "exist. With --at it shows the state at that sequence or time. JOB is NAMESPACE/NAME, or NAME where that is "
        "unique; or the name of a gang of pods, or of a pod. Of a Ray cluster that scales itself it shows all that "
        "waits in it, and what each worker group says to that.",
        examples="""
muster why video/rayjob-video-h4x2q
muster why rayjob-video-h4x2q --all           with every small step
muster why video/rayjob-video-h4x2q -o json
muster why video/old-job --log archive.jsonl.gz
muster why video/train --gateway https://muster.example.com     with your kubeconfig alone
muster why video/tf-smoke-gpu-worker-0         why is this pod pending?
muster why video/train --at 2026-03-01T09:00:00Z     why did it wait then?
""",
    ),
    Page(
        name="ls",
        function="ls",
        order=24,
        summary="List the jobs: waiting, running, refused, and those that ended in the last hour.",
        details="Jobs in no queue are listed too, with the reason. It asks the gateway of a "
        "running `muster up`, or reads the newest snapshot of the log and what came after it. A state is one of "
        "seen, outside (not suspended, so not queued), refused, waiting, "
        "reserved, admitted, running, leaving, finished, gone; docs/reference/status.md explains the words in "
        "STATUS, and what to do. The owner of a job is its label or annotation muster.dev/owner. With --watch each job "
        "is printed again when its state or status changes.",
        examples="""
muster ls
muster ls --state waiting --queue root/algorithm
muster ls -n video -o wide                     with requests, since when, and why
muster ls --mine --watch                       your jobs, and each change of one
muster ls --state refused
muster ls --since 24h -o json
muster ls --at 2026-03-01T09:00:00Z             as it was then
muster ls --gateway https://muster.example.com   with your kubeconfig alone
""",
    ),
    Page(
        name="usage",
        function="usage",
        order=30,
        summary="Add up GPU-hours by queue or owner: used, lost, and waited for.",
        details="Used is from the reservation of quota to its release. Lost is the part of it in runs that were "
        "evicted or failed, from when they began, or saved their work last (muster.dev/checkpointed-at). Waited is "
        "what waiting jobs ask for, times how long they wait. The owner of a job is its label or annotation "
        "muster.dev/owner; jobs without one are the line `-`. Without --month and --from it is this month; of a "
        "recorded log, all of it.",
        examples="""
muster usage
muster usage --by owner --month 2026-03
muster usage --from -7d -o json
muster usage --log archive --resource cpu
""",
    ),
    Page(
        name="wait",
        function="wait",
        order=29,
        summary="Wait until a job runs, or has ended; for scripts.",
        details="Shows on stderr each status that the job has meanwhile. Exit code 0 when it runs (--until started) or "
        "has succeeded; 1 when it failed, or was deleted; 3 when the log has no such job; 6 after --timeout. A job "
        "that is evicted is queued again, and the wait goes on. It follows the log through restarts and roll-overs.",
        examples="""
muster wait video/train
muster wait video/train --until started --timeout 30m    then read its logs
muster wait video/prepare video/index --timeout 2h
""",
    ),
    Page(
        name="nodes",
        function="nodes",
        order=28,
        summary="List the nodes: what is free on each, and which jobs hold the rest.",
        details="What is free is what the node can give less what its pods ask for. Under the list is what is free in "
        "all, and the most on one node: a pod needs it in one piece.",
        examples="""
muster nodes
muster nodes -o wide                           every job on each node
muster nodes --at -1h                          as it was an hour ago
muster nodes -o json
""",
    ),
    Page(
        name="ask",
        function="ask_",
        file="ask",
        order=27,
        summary="Tell what a job would meet before it is submitted: when it starts, and at whose cost.",
        details="Takes a manifest, forks the queues in memory with the job at its place, and writes nothing. It says "
        "what would refuse the job, which jobs it would delay or take quota back from, and the smallest changes with "
        "which it would start now: fewer pods, another queue, a declared run time. A start is promised only where "
        "enough runs and waits have ended, as in `muster position`. Room on nodes counts by amounts alone.",
        examples="""
muster ask job.yaml
muster ask job.yaml -o json
muster ask job.yaml --log log.jsonl.gz --at 2026-03-01T09:00:00Z
""",
    ),
    Page(
        name="position",
        function="position",
        order=26,
        summary="Show the place of a job in its queue, and when it starts.",
        details="The start is a promise: the queue is played forward with how long such jobs ran, and the time by "
        "which it starts in 9 of 10 cases is learned from the waits that have ended. Without enough past there is no "
        "promise; then the command says why, and shows how fast the queue moves. docs/howto/waiting.md explains both.",
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
        summary="Show what happened in a queue: numbers, waiting jobs with reasons, then line by line.",
        details="QUEUE is a path of the quota tree, or a unique end of one; the queues below it count too. "
        "Without --from it shows what is kept of the jobs there: the newest 100 events of each, also of the newest "
        "2,000 jobs that are gone. With --from it shows everything from that position on; --from 1 reads the whole "
        "log.",
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
        summary="Print the log, one line per event, and follow it.",
        details="Each line begins with the sequence of its commit; --since takes such a sequence. Exit code 3 when the "
        "log has no such job or queue.",
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
        details="Every command with --log reads the result. A file is written under another name first, so an "
        "interrupted export leaves nothing behind. A second export to an archive (--segments) adds the new commits. "
        "Its manifest names the log, its generation, and each segment with its sequences and its sha256; `muster "
        "import` stores it in NATS again.",
        examples="""
muster export --out log.jsonl.gz
muster export --data ./demo --out log.jsonl   of a demo that does not run
muster export --segments archive              a second export adds what is new
muster export --url nats://nats.muster:4222 --segments archive
""",
    ),
    Page(
        name="import",
        function="import_log",
        file="import_log",
        order=52,
        summary="Store an archived log in NATS again, in an empty stream.",
        details="Stores the same bytes at the same sequences, and puts the log in force when it is complete. Refused "
        "if the cell has another log, or the stream exists. `muster why`, `muster replay` and other commands read an "
        "archive without an import. Services that start on an imported log continue it: if the log is in force "
        "elsewhere, do not start services on the import.",
        examples="""
muster import --segments archive --cell old   beside the log of the cell in force
muster import --segments archive --url nats://nats.muster:4222 --replicas 3
""",
    ),
    Page(
        name="replay",
        function="replay",
        order=55,
        summary="Make every decision of a log again, and compare byte for byte; print the state at any position.",
        details="Writes nothing; a replay has no access to a cluster. Ends with `N commits, 0 divergent` and exit code "
        "0. Otherwise it shows the first decision that differs, as recorded and as decided now, and the difference of "
        "the states, and ends with exit code 5. Positions are sequences or times (UTC by default). With --until it "
        "prints the state of the cell, or of one stage, at that position.",
        examples="""
muster replay --log log.jsonl.gz
muster replay --log log.jsonl.gz --verify     also at positions without a decision
muster replay --nats nats://nats.muster:4222 --stage queue_sorter
muster replay --log archive --from 120000     compares only the decisions from there on
muster replay --log log.jsonl.gz --until 2026-03-01T12:00:00Z
muster replay --log log.jsonl.gz --until 40 --stage quota_accountant -o json
""",
    ),
    Page(
        name="debug",
        function="debug",
        order=57,
        summary="Show one decision of one stage: its input, its state, and what it decides there now.",
        details="Where the log has a decision of the stage, the command decides again and compares; elsewhere it shows "
        "what the stage would decide. Exit code 5 when the decision differs from the recorded one.",
        examples="""
muster debug quota_accountant --log log.jsonl.gz --at 40
muster debug queue_sorter --log log.jsonl.gz --at 40 --state     the whole state
muster debug queue_sorter --log log.jsonl.gz --at 40 -o json
""",
    ),
    Page(
        name="check",
        function="check",
        order=60,
        summary="Check the invariants of a recorded log at every position, with separate accounts.",
        details="Shows how often each invariant was checked and broken, and which ones a log cannot show. Exit code 5 "
        "when one is broken.",
        examples="""
muster check --log log.jsonl.gz
muster check --log log.jsonl.gz -o json
""",
    ),
    Page(
        name="simulate",
        function="simulate",
        order=65,
        summary="Run a job trace through the scheduler in virtual time, and measure the result.",
        details="CLUSTER is a JSON file of nodes and queues, JOBS a CSV file with the columns job_id, queue, gpus, "
        "submit_s, duration_s and, where wanted, priority, cpu_milli, memory_mib, gpu_milli, min_member, preemptible, "
        "run_time_s. Node and pod lists of the openb trace are taken as they are.\n\n"
        "Policy `muster` runs the real stages through the log; a small separate engine runs the other policies, for "
        "comparison. DIR gets events.jsonl (every commit, for `muster replay` and `muster check`), jobs.csv, "
        "summary.json and report.html. docs/reference/simulation.md explains the figures.\n\n"
        'CLUSTER looks like {"nodes": [{"count": 56, "gpus": 8}], "queues": {"vision": {"min": 64, "max": 448}, '
        '"text": {"min": 128, "weight": 2}}}; amounts are GPUs, or objects per resource; queues may have children. '
        'With "placement": "pack" (or "spread") beside "nodes", pods need nodes. '
        'FAULTS looks like {"faults": [{"kind": "node_loss", "at_s": 3600, "for_s": 900, "nodes": 2}, '
        '{"kind": "api_outage", "at_s": 7200, "for_s": 60}]}.\n\n'
        "Without files of your own, --day draws a day from published shapes of GPU clusters, and writes it to DIR as "
        "cluster.json, arrivals.csv and faults.json. Families: helios (teams whose demand differs from their "
        "guarantees), seren (short runs, half of them of whole nodes), nightly (half of the jobs come at once in the "
        "evening), flood (one team submits half of all jobs at once), services (some jobs run on and on), tiny (200 "
        "queues), prio (three priorities), pareto (run times without a mean). Options: linked, inner, jobs=500, "
        "nodes=16, max=2, lost=3, checkpoints=0.5, elastic=0.2, placement=pack; docs/howto/simulate.md explains each. "
        "Equal words give an equal day; another seed gives another day of the family.",
        examples="""
muster simulate --cluster cluster.json --jobs jobs.csv --out result
muster simulate --cluster cluster.json --jobs jobs.csv --policy all --out table
muster simulate --cluster cluster.json --jobs jobs.csv --policy kueue-like --checkpoint-s 600 --out ckpt
muster simulate --cluster cluster.json --jobs jobs.csv --faults faults.json --seed 7 --out faults
muster simulate --cluster openb_nodes.csv --jobs openb_pods_default.csv --out openb
muster simulate --day helios:7 --policy all --out day
muster simulate --day seren:3,linked,jobs=1000,placement=pack,lost=2 --out packed
""",
    ),
    Page(
        name="decide",
        function="decide",
        order=64,
        summary="Ask what would be decided about nodes, queues and jobs in a file, without a cluster.",
        details="The real stages decide about the state in FILE (YAML or JSON) until they are quiet: what is Running "
        "is adopted and may be evicted, what is Pending is queued. Shows which jobs are admitted on which node and GPU "
        "devices, which are evicted for which job and by which rule, and which wait, with a code and a sentence. "
        "Nothing is written.\n\n"
        "FILE has nodes {name, gpus, cpu_milli, memory_mib, gpu_memory_mib, labels, taints}; queues {name, parent, "
        "quota, limit, weight, priority} (numbers are GPUs, or a map per resource; whole KAI Queue objects or one "
        "ElasticQuotaTree do as well); and jobs {name, queue, priority, preemptible, min_member, created_s, subgroups, "
        "pods}, with pods {name, gpus or gpu_fraction or gpu_memory_mib, devices, cpu_milli, memory_mib, phase, node, "
        "started_s, subgroup}. Every field and its default: docs/howto/decide.md.\n\n"
        "A file may be as short as:\n\n"
        "{nodes: [{name: n1, gpus: 2}], jobs: [{name: half, pods: [{gpu_fraction: 0.5}, {gpu_fraction: 0.5}]}]}",
        examples="""
muster decide --state state.yaml
muster decide --state state.yaml -o json
cat state.json | muster decide --state - -o json
""",
    ),
    Page(
        name="whatif",
        function="whatif",
        order=66,
        summary="Run a recorded past again with a change, and show which jobs would have started when.",
        details="Takes the jobs of a log with their arrival and running time, and runs them twice through the real "
        "stages in virtual time: without and with the change. Only the change makes a difference between the two runs. "
        "Several options together are one change. --from and --until select a window of the past; the same value for "
        "both is a snapshot, in which no job arrives. Jobs that had not ended run for ever. Nothing is written.",
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
        summary="Compare the decisions of two logs, or of one under other rules; show the first difference.",
        details="Takes only the inputs of both logs (objects seen, writes done, time), and lets this version decide "
        "again, with every stage deciding right after every input, so races at the time of the recording make no "
        "difference. Uids, versions and times of day do not count. With --rule or --ruleset the second side is decided "
        "under those rules, and may be the same log. Exit code 5 when something differs.",
        examples="""
muster diff before.jsonl.gz after.jsonl.gz
muster diff log.jsonl.gz --rule reclaim=disabled
muster diff result-a/events.jsonl result-b/events.jsonl
""",
    ),
)
