"""What it costs to write short records to 10,000 files, by each way that there is: ``python -m benchmarks.writes``.

It is the floor of a message to one of 10,000 streams by chance; ``writes.c`` says what is measured.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.processes import compiled

FILES = 10_000
RECORDS = 400_000
RECORD_BYTES = 180
"""Of a batch of one record of 100 bytes."""
ROUNDS = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, help="where the files are")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rounds: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="streamlog-writes-", dir=options.dir) as directory:
        command = [compiled("writes"), directory, str(FILES), str(RECORDS), str(RECORD_BYTES)]
        for _ in range(ROUNDS):
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            rounds.append(json.loads(done.stdout))
    for name in rounds[0]:
        print(f"{name:14} {median(it[name] for it in rounds):6.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
