"""The steps that a message goes through, each on one batch of messages, and what a step costs.

``python -m tests.unit.hot_path`` runs each step once between two marks. A mark is a system call that
nothing else makes: valgrind dumps its counts there, so each second dump is a step.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamlog.ingest.frames import RecordCollector
from streamlog.ingest.pub_ack_format import ack_head
from streamlog.nats.router import Router
from streamlog.record.codec import RecordRun, iter_records
from streamlog.record.columns import ColumnDecoder
from tests.nats_frames import FrameParser

MESSAGES = 900
SIZE_BYTES = 100
MARK = "getpgid"
"""Of libc, and by way of ``os.getpgid`` Python's."""

Step = Callable[[], Any]


def frames(count: int = MESSAGES, size_bytes: int = SIZE_BYTES) -> bytes:
    """What one read of the NATS socket brings."""
    body = bytes(i % 26 + 97 for i in range(size_bytes))
    line = b"MSG bench.a 1 _INBOX.b.%06d %d\r\n%s\r\n"
    return b"".join(line % (number, size_bytes, body) for number in range(count))


class HotPath:
    """Each step with its input made ready; a step may be taken again and again."""

    def __init__(self, count: int = MESSAGES) -> None:
        self._frames = frames(count)
        self._parser = FrameParser()
        self._inflow = RecordCollector(message_bytes_max=1 << 20)
        self._parser.bind(1, self._inflow)
        self._router = Router()
        self._replies = b""
        self._batch = b""
        self.parse()
        self.take_replies()
        self.seal()

    @property
    def steps(self) -> dict[str, Step]:
        """In the order in which a message takes them: ``seal`` empties what ``parse`` fills."""
        return {
            "parse": self.parse,
            "take replies": self.take_replies,
            "seal": self.seal,
            "build acks": self.build_acks,
            "iterate": self.iterate,
            "decode to columns": self.decode,
        }

    def parse(self) -> None:
        self._parser.feed(self._frames)

    def take_replies(self) -> None:
        self._replies = self._inflow.take_replies()

    def seal(self) -> None:
        run: RecordRun = self._inflow.run
        self._batch = run.seal(base_offset=0, leader_epoch=1, timestamp_ms=0)

    def build_acks(self) -> bytes:
        return self._router.acknowledge(self._replies, ack_head("bench"), 0)

    def iterate(self) -> int:
        return sum(1 for _ in iter_records(self._batch))

    def decode(self) -> Any:
        decoder = ColumnDecoder({"offset", "key", "value", "subject"})
        decoder.feed(self._batch)
        decoder.decode()
        return decoder.take()


def instructions(valgrind: str, directory: Path) -> dict[str, float]:
    """Machine instructions for each message, by step."""
    out = directory / "callgrind"
    command = [valgrind, "--tool=callgrind", f"--callgrind-out-file={out}"]
    command += [f"--dump-before={MARK}", sys.executable, "-m", "tests.unit.hot_path"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
        env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    steps = list(HotPath(1).steps)
    return {step: _total(Path(f"{out}.{2 * i + 2}")) / MESSAGES for i, step in enumerate(steps)}


def _total(dump: Path) -> int:
    found = re.search(r"^summary: (\d+)", dump.read_text(), re.MULTILINE)
    assert found, f"{dump} has no summary"
    return int(found[1])


def main() -> None:
    path = HotPath()
    for step in path.steps.values():  # once before, so that nothing is made for the first time
        step()
    for step in path.steps.values():
        os.getpgid(0)
        step()
        os.getpgid(0)


if __name__ == "__main__":
    main()
