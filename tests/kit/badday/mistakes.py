"""What people do to an installation by mistake, and take back a while later; `kit.badday.faults` has what breaks by
itself.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import struct
import subprocess
from typing import TYPE_CHECKING

from kit.badday.cluster import TREE
from kit.badday.faults import _full, _leader, fault
from kit.badday.player import MERGE
from kit.badday.stream import Unanswered
from kit.compose import runnable

if TYPE_CHECKING:
    from kit.badday.day import Day

BINDING = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
TREES = "/apis/scheduling.sigs.k8s.io/v1beta1/namespaces/kube-system/elasticquotatrees"


async def _copies(day: Day, stream: str, count: int) -> None:
    """Edit on how many servers a stream is."""
    info = await day.stream.ask(f"STREAM.INFO.{stream}")
    await day.stream.ask(f"STREAM.UPDATE.{stream}", {**info["config"], "num_replicas": count})


@fault(r"on 1 server")
async def copies_edited(day: Day) -> None:
    """The log is on one server, which is killed; then it is on three again."""
    stream = await day.stream.newest()
    await _copies(day, stream, 1)
    await asyncio.sleep(day.rng.uniform(25.0, 30.0))
    server = await _leader(day)
    day.note(server.name)
    server.container.send(signal.SIGKILL)
    for _ in range(60):
        try:
            await _copies(day, stream, 3)
            return
        except Unanswered:
            await asyncio.sleep(0.5)


@fault(r"actuator|watcher|deciders|quota.accountant")
async def key_shut_out(day: Day) -> None:
    """The servers take the next key of a user at once, and its pods get the seed a while later."""
    user = day.rng.choice([name for name in ("watcher", "actuator", "deciders") if name in day.installed.deployments])
    day.note(user)
    folder = day.folder / f"keys-{day.played}"
    argv = runnable(["muster", "nats", "keys", "--folder", str(folder), "--layout", day.installed.layout])
    await asyncio.to_thread(subprocess.run, argv, check=True, stdout=subprocess.DEVNULL)
    name = f"MUSTER_NKEY_{user.upper()}"
    fresh = [line for line in (folder / "server/keys.conf").read_text().splitlines() if line.startswith(name)]
    known = day.nats.keys.folder / "server/keys.conf"
    kept = [line for line in known.read_text().splitlines() if not line.startswith(name)]
    known.write_text("\n".join([*kept, *fresh, ""]))
    for server in day.nats.servers:
        server.container.send(signal.SIGHUP)
    await asyncio.sleep(day.rng.uniform(20.0, 30.0))
    shutil.copy(folder / user / "seed", day.nats.keys.seed(user))
    # A kubelet that starts it again and again waits longer each time: a person restarts the deployment.
    for pod in day.installed.deployments[user].pods:
        pod.forget()


@fault(r"muster-actuator may not")
async def rights_withdrawn(day: Day) -> None:
    """The actuator may do nothing on the API server for a while."""
    path = f"{BINDING}/muster-actuator"
    _, binding = await day.api.ask("GET", path)
    meta = {"name": "muster-actuator", "labels": binding["metadata"].get("labels") or {}}
    await day.api.insist("DELETE", path)
    await asyncio.sleep(day.rng.uniform(25.0, 40.0))
    await day.api.insist("POST", BINDING, {**binding, "metadata": meta})


@fault(r"quota tree|it is refused as a whole")
async def tree_mistyped(day: Day) -> None:
    """A max below the min, and right again: what was in force stays in force."""
    path, root = f"{TREES}/elasticquotatree", TREE["spec"]["root"]
    wrong = {"spec": {"root": {**root, "min": {"cpu": "64"}, "max": {"cpu": "2"}}}}
    await day.api.insist("PATCH", path, wrong, MERGE)
    await asyncio.sleep(day.rng.uniform(20.0, 30.0))
    await day.api.insist("PATCH", path, {"spec": TREE["spec"]}, MERGE)


@fault(r"clock")
async def every_clock_ahead(day: Day) -> None:
    """Five minutes: of all pods, as by a time server that is wrong."""
    paths = [day.folder / f"{pod.name}.clock" for pod in day.installed.pods()]
    for path in paths:
        path.write_bytes(struct.pack("<q", 300_000))
    await asyncio.sleep(day.rng.uniform(20.0, 30.0))
    for path in paths:
        path.write_bytes(struct.pack("<q", 0))


@fault(r"nats-\d.*(disk|room|JetStream)|(disk|room|JetStream).*nats-\d", limit_s=60.0)
async def disk_full_while_the_lead_moves(day: Day) -> None:
    server = await _leader(day)
    stream = await day.stream.newest()
    filling = asyncio.ensure_future(_full(day, [server]))
    await asyncio.sleep(0.5)
    try:
        await day.stream.ask(f"STREAM.LEADER.STEPDOWN.{stream}")
    except Unanswered:
        day.note("nobody answers")
    await filling
    await day.whole_nats(90.0)
