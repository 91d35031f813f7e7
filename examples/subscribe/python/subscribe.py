"""Prints every admission once, whatever is restarted meanwhile: this program, Muster, NATS.

The consumer is durable: NATS remembers what was acknowledged. Repeated messages have the same ce-id, which
is kept in a file together with the finished work. Settings are environment variables, all with a default.
"""

import asyncio
import json
import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import nats
from nats.aio.msg import Msg
from nats.errors import Error
from nats.js.api import AckPolicy, ConsumerConfig

URL = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")
NAME = os.environ.get("READER", "reader")  # of the durable consumer, and of the user where there are users
SUBJECT = os.environ.get("SUBJECT", "muster.pub.v1.>")
DONE = Path(os.environ.get("DONE", "admissions.jsonl"))
NKEY_FILE = os.environ.get("NKEY_FILE", "")  # with these three you sign in to a production NATS
CA_FILE = os.environ.get("CA_FILE", "")
API_PREFIX = os.environ.get("API_PREFIX", "$JS.API")

ADMITTED = "dev.muster.workload.admitted.v1"


def done_before() -> Iterator[str]:
    """The ce-ids of finished work, except a last line that was cut off."""
    if DONE.exists():
        lines = DONE.read_text().splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            DONE.write_text("".join(lines[:-1]))
        yield from (json.loads(line)["id"] for line in lines if line.endswith("\n"))


async def main() -> None:
    done = set(done_before())
    client = await nats.connect(
        URL,
        name=NAME,
        max_reconnect_attempts=-1,
        inbox_prefix=f"_INBOX_{NAME}".encode() if NKEY_FILE else b"_INBOX",
        nkeys_seed=NKEY_FILE or None,
        tls=ssl.create_default_context(cafile=CA_FILE) if CA_FILE else None,
    )
    stream = client.jetstream(prefix=API_PREFIX)
    config = ConsumerConfig(durable_name=NAME, filter_subject=SUBJECT, ack_policy=AckPolicy.EXPLICIT, ack_wait=30)
    subscription = await stream.pull_subscribe(SUBJECT, durable=NAME, stream="MUSTER_PUB", config=config)
    while True:
        try:
            messages = await subscription.fetch(100, timeout=5)
        except TimeoutError:  # nothing yet
            continue
        except Error:  # NATS is away: what was not acknowledged comes again
            await asyncio.sleep(1)
            continue
        for message in messages:
            handle(message, done)
            await message.ack()


def handle(message: Msg, done: set[str]) -> None:
    headers = message.headers or {}
    event = headers.get("ce-id", "")
    if headers.get("ce-type") != ADMITTED or event in done:
        return
    body = json.loads(message.data)
    record = {"id": event, "job": f"{body['workload']['namespace']}/{body['workload']['name']}", "queue": body["queue"]}
    with DONE.open("a") as file:
        file.write(json.dumps(record) + "\n")
    done.add(event)
    print(record["id"], record["job"], record["queue"], flush=True)


if __name__ == "__main__":
    asyncio.run(main())
