"""The program in the pod that reserves a shared GPU from the device plugin: reports the device, and stays.

The device plugin names the device in NVIDIA_VISIBLE_DEVICES; without a UUID there, the driver is asked.
"""

from __future__ import annotations

import asyncio
import os
import subprocess

import msgspec

from muster.core.actuation.podwrites import REPORTED
from muster.kube.config import connect
from muster.model.api import MERGE_PATCH, PODS

AGAIN_S = 5.0


class NoDeviceError(Exception):
    """Nothing says which GPU this container has."""


def device() -> str:
    """The UUID of the GPU of this container. Raises NoDeviceError."""
    visible = os.environ.get("NVIDIA_VISIBLE_DEVICES", "")
    if visible.startswith(("GPU-", "MIG-")):
        return visible
    asked = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        process = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as err:
        raise NoDeviceError(f"NVIDIA_VISIBLE_DEVICES is {visible!r}, and nvidia-smi does not tell: {err}") from err
    return process.stdout.strip().partition("\n")[0].strip()


async def report(uuid: str) -> None:
    """Write it on our own pod, until the API server has taken it."""
    patch = msgspec.json.encode({"metadata": {"annotations": {REPORTED: uuid}}})
    path = PODS.path(os.environ["POD_NAMESPACE"], os.environ["POD_NAME"])
    transport = await connect()
    try:
        while True:
            response = await transport.request("PATCH", path, body=patch, content_type=MERGE_PATCH)
            if response.ok:
                return
            await asyncio.sleep(AGAIN_S)
    finally:
        await transport.close()


async def main() -> None:
    await report(device())
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
