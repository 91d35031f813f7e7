"""``python -m muster.runtime.probe URL``: is this service healthy? The health check of containers, which have no curl.

Exit code 0 for an answer of 200, 1 for any other and for none; what was answered is printed.
"""

from __future__ import annotations

import http.client
import sys
from urllib.parse import urlsplit

TIMEOUT_S = 2.0
SHOWN_BYTES = 2_000


def probe(url: str) -> tuple[bool, str]:
    """Whether the URL answers 200, and what it says."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", where.path)
        answer = connection.getresponse()
        return answer.status == http.client.OK, answer.read(SHOWN_BYTES).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as err:
        return False, f"{url} does not answer: {err}"
    finally:
        connection.close()


if __name__ == "__main__":
    healthy, text = probe(sys.argv[1])
    sys.stdout.write(f"{text}\n")
    sys.exit(0 if healthy else 1)
