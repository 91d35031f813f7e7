"""Posts to a Slack channel what an owner wants to hear: evicted, failed, held up, an alarm.

Any webhook that takes JSON does. An event is acknowledged once the webhook has taken it, so none is lost while Slack,
NATS or this program is away; after a crash one may be posted twice. Settings are environment variables; WEBHOOK_URL
alone has no default.
"""

import asyncio
import os

import aiohttp

from muster.client import FollowedEvent, follow

WEBHOOK_URL = os.environ.get("WEBHOOK_URL", "")
OWNER = os.environ.get("OWNER", "")  # only jobs of this owner (muster.dev/owner); all of them without
TYPES = {"workload_evicted", "workload_finished", "workload_held_up", "workload_alarm_raised"}
AGAIN_S = float(os.environ.get("AGAIN_S", "5"))


def text_of(told: FollowedEvent) -> str:
    """One line; empty where there is no need to act."""
    event = told.event
    job = f"*{event.workload.namespace}/{event.workload.name}*" + (f" ({event.owner})" if event.owner else "")
    match told.type:
        case "workload_evicted":
            claimant = f" for {event.claimant}" if event.claimant else ""
            return f":leftwards_arrow_with_hook: {job} was evicted from {event.queue}{claimant}: {event.reason}"
        case "workload_finished" if event.outcome != "succeeded":
            return f":x: {job} {event.outcome}: {event.cause or event.reason or 'no reason given'}"
        case "workload_held_up":
            return f":warning: {job} does not run: {event.message}"
        case "workload_alarm_raised":
            return f":rotating_light: {job}: {event.message}"
    return ""


async def post(session: aiohttp.ClientSession, text: str) -> None:
    """Until the webhook has taken it."""
    while True:
        try:
            async with session.post(WEBHOOK_URL, json={"text": text}) as answer:
                if answer.ok:
                    return
                print(f"the webhook answered {answer.status}; once more in {AGAIN_S:g} s", flush=True)
        except aiohttp.ClientError as err:
            print(f"the webhook cannot be reached ({err}); once more in {AGAIN_S:g} s", flush=True)
        await asyncio.sleep(AGAIN_S)


async def main() -> None:
    if not WEBHOOK_URL:
        raise SystemExit("set WEBHOOK_URL to the address of an incoming webhook")
    async with aiohttp.ClientSession() as session:
        async for told in follow(
            os.environ.get("NATS_URL", "nats://127.0.0.1:4222"),
            reader=os.environ.get("READER", "slack"),
            types=TYPES,
            subject=os.environ.get("SUBJECT", "muster.pub.v1.>"),
            nkey_file=os.environ.get("NKEY_FILE", ""),
            ca_file=os.environ.get("CA_FILE", ""),
            api_prefix=os.environ.get("API_PREFIX", "$JS.API"),
        ):
            text = text_of(told) if OWNER in ("", told.event.owner) else ""
            if text:
                await post(session, text)


if __name__ == "__main__":
    asyncio.run(main())
