"""Prints every admission once, with the client of the wheel: `pip install kube-muster`.

NATS remembers what was acknowledged, so a restarted program goes on where it was. What comes twice has the same id,
which is kept in a file together with the finished work. Settings are environment variables, all with a default.
"""

import asyncio
import json
import os
from pathlib import Path

from muster.client import FollowedEvent, follow

DONE = Path(os.environ.get("DONE", "admissions.jsonl"))


def done_before() -> set[str]:
    """The ids of finished work, except a last line that was cut off."""
    lines = DONE.read_text().splitlines(keepends=True) if DONE.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    if len(whole) < len(lines):
        DONE.write_text("".join(whole))
    return {json.loads(line)["id"] for line in whole}


async def main() -> None:
    done = done_before()
    async for told in follow(
        os.environ.get("NATS_URL", "nats://127.0.0.1:4222"),
        reader=os.environ.get("READER", "reader"),
        types={"workload_admitted"},
        subject=os.environ.get("SUBJECT", "muster.pub.v1.>"),
        nkey_file=os.environ.get("NKEY_FILE", ""),
        ca_file=os.environ.get("CA_FILE", ""),
        api_prefix=os.environ.get("API_PREFIX", "$JS.API"),
    ):
        if told.id not in done:
            handle(told)
            done.add(told.id)


def handle(told: FollowedEvent) -> None:
    event = told.event
    record = {"id": told.id, "job": f"{event.workload.namespace}/{event.workload.name}", "queue": event.queue}
    with DONE.open("a") as file:
        file.write(json.dumps(record) + "\n")
    print(record["id"], record["job"], record["queue"], flush=True)


if __name__ == "__main__":
    asyncio.run(main())
