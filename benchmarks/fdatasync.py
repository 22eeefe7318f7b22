"""The floor of a synced ack: ``python -m benchmarks.fdatasync`` appends a record to a file and syncs it, again and
again at a fixed rate, and prints the times as one line of JSON.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles

RECORD_BYTES = 200
"""Of a batch of one record of 100 bytes."""


def timed(directory: Path, count: int, rate: int) -> dict[str, float]:
    """Each from the moment at which it was due, as a publisher sees it."""
    record, times = os.urandom(RECORD_BYTES), []
    with tempfile.NamedTemporaryFile(dir=directory, prefix="fdatasync-") as file:
        start = time.perf_counter()
        for number in range(count):
            due = start + number / rate
            while (wait := due - time.perf_counter()) > 0:
                time.sleep(wait)
            os.pwrite(file.fileno(), record, number * RECORD_BYTES)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - due)
    parts = quantiles(times, n=100)
    return {"p50_ms": 1e3 * parts[49], "p99_ms": 1e3 * parts[98], "messages": count}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--count", type=int, default=6_000)
    parser.add_argument("--rate", type=int, default=1_000)
    options = parser.parse_args()
    print(json.dumps(timed(options.directory, options.count, options.rate)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
