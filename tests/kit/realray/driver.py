"""A Ray driver that does what it is told, line by line. Runs under Ray's own Python; knows nothing of Muster.

A line of its input is a JSON text, Python code; a line of its output is JSON: what the code left in `answer`, or the
error. Names stay defined from line to line. It connects to RAY_ADDRESS first.
"""

import json
import os
import sys
import traceback

import ray


def main() -> None:
    """Until the input ends, and with it the driver."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what Ray prints is no answer
    ray.init(namespace="default_namespace", log_to_driver=False, logging_level="error")
    names = {"ray": ray}
    lines.write(json.dumps({"answer": "connected"}) + "\n")
    for line in sys.stdin:
        names["answer"] = None
        try:
            exec(json.loads(line), names)
            said = {"answer": names["answer"]}
        except BaseException:
            said = {"error": traceback.format_exc()}
        lines.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
