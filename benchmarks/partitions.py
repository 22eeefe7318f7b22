"""``python -m benchmarks.partitions``: a node with very many partitions.

``life``: what it costs to make, use, stop, start, kill and restart it, and what it costs at rest.
Each record is asked for after each start: none that was acknowledged may be missing.

``soak``: publish at a steady rate under retention, and tell whether memory ends growing once disk
use has levelled. Each sample is a line of JSON, so that a run that is cut short has told its part.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import linear_regression, median
from typing import Final

from benchmarks.asking import Question, ask_all
from benchmarks.connection import VOID, BenchmarkError, Connection
from benchmarks.lone_node import LoneNode
from benchmarks.processes import cpu_seconds, resident_mib

PARTITIONS: Final = 20_000
STREAMS: Final = 40
IN_FLIGHT: Final = 2_000
INBOX: Final = "_INBOX.partitions"
IDLE_S: Final = 60.0
SETTLE_S: Final = 20.0
READY_S: Final = 300.0

SOAK_PARTITIONS: Final = 100
SOAK_STREAMS: Final = 10
SEGMENT_BYTES: Final = 65_536
PARTITION_BYTES: Final = 4 * SEGMENT_BYTES
RECORD_BYTES: Final = 512
SAMPLE_S: Final = 5.0
TICK_S: Final = 0.05
LEVEL: Final = 0.95
GROWTH_MAX: Final = 0.1
"""MiB a minute, in the last third: less is noise of the allocator."""
MIB: Final = 1 << 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partitions", description=__doc__)
    parser.add_argument("run", choices=("life", "soak"))
    parser.add_argument("--partitions", type=int, default=0, help="of all streams together")
    parser.add_argument("--streams", type=int, default=0)
    parser.add_argument("--sync", default="", choices=("", "os", "interval", "commit"))
    parser.add_argument("--idle", type=float, default=IDLE_S, help="seconds; 0 leaves it out")
    parser.add_argument("--minutes", type=float, default=15.0, help="of a soak")
    parser.add_argument("--rate", type=float, default=500.0, help="messages a second, in a soak")
    parser.add_argument("--settings", default="", help="more of the node's file")
    parser.add_argument("--dir", type=Path)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="streamlog-partitions-", dir=options.dir))
    try:
        return life(options, directory) if options.run == "life" else soak(options, directory)
    except VOID as error:
        print(f"void: {error}", file=sys.stderr)
        for log in directory.glob("node/node-*/node.log"):
            print(*log.read_text(errors="replace").splitlines()[-20:], sep="\n", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def tell(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


# A node's life


def life(options: argparse.Namespace, directory: Path) -> int:
    streams = options.streams or STREAMS
    partitions = options.partitions or PARTITIONS
    sync = options.sync or "os"
    node = LoneNode(directory / "node", settings=f'[log]\nsync = "{sync}"\n{options.settings}')
    subjects = [
        subject
        for stream in range(streams)
        for subject in subjects_of(f"s{stream}", partitions // streams)
    ]
    acknowledged, clean = 0, True
    start = partial(node.start, READY_S)
    try:
        start()
        names = [f"s{number}" for number in range(streams)]
        count = {"streamlog.partitions": str(partitions // streams)}
        timed("create", lambda: create(node, names, {}, count))
        timed("led", lambda: until_led(node, subjects))
        acknowledged += len(subjects)
        idle(node, options.idle, "created and written to once")
        for name in ("first", "second"):
            clean &= stop(node, f"{name} stop")
            timed(f"start after the {name} stop", start)
            check(node, streams, acknowledged)
            idle(node, options.idle if name == "first" else 0, "started again")
        timed("publish", lambda: publish(node, subjects))
        acknowledged += len(subjects)
        clean &= stop(node, "stop after publishing")
        timed("start after that", start)
        check(node, streams, acknowledged)
        timed("publish again", lambda: publish(node, subjects))
        acknowledged += len(subjects)
        node.kill()
        timed("start after kill -9", start)
        check(node, streams, acknowledged)
        clean &= stop(node, "last stop")
    finally:
        node.stop()
    return 0 if clean else 1


def stop(node: LoneNode, name: str) -> bool:
    """Whether it ended with 0."""
    began, code = time.perf_counter(), "0"
    try:
        node.end()
    except BenchmarkError as error:
        code = str(error)
    tell(step=name, seconds=round(time.perf_counter() - began, 2), code=code)
    return code == "0"


def subjects_of(stream: str, partitions: int) -> Iterator[str]:
    """Partition 0 takes the subject itself."""
    yield stream
    for number in range(1, partitions):
        yield f"{stream}.{number}"


def timed(name: str, call: Callable[[], object]) -> None:
    began = time.perf_counter()
    call()
    tell(step=name, seconds=round(time.perf_counter() - began, 2))


def create(
    node: LoneNode,
    names: Sequence[str],
    settings: Mapping[str, object],
    metadata: Mapping[str, str],
) -> None:
    """One after the other: a large one takes longer than an answer is waited for."""

    def body(name: str) -> bytes:
        config = {"name": name, "subjects": [name], "num_replicas": 1, "metadata": metadata}
        return json.dumps({**config, **settings}).encode()

    ask_all(node.nats, (Question(f"STREAM.CREATE.{name}", body(name)) for name in names), 1)


def until_led(node: LoneNode, subjects: Sequence[str]) -> None:
    """One record is acknowledged by each."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            with Connection(node.nats) as connection:
                connection.request(subjects[-1], b"x")
            break
        except BenchmarkError:  # nobody listens yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    publish(node, subjects[:-1])


def publish(node: LoneNode, subjects: Sequence[str]) -> None:
    """One record to each. Return when all are acknowledged; raise BenchmarkError if one is not."""
    sent = acknowledged = 0
    tail = b""
    with Connection(node.nats) as connection:
        connection.subscribe(INBOX, 1)
        while acknowledged < len(subjects):
            more = subjects[sent : sent + IN_FLIGHT - (sent - acknowledged)]
            connection.send(
                b"".join(b"PUB %s %s 1\r\nx\r\n" % (it.encode(), INBOX.encode()) for it in more)
            )
            sent += len(more)
            try:
                data = tail + connection.receive()
            except TimeoutError:
                raise BenchmarkError(f"{acknowledged} of {sent} are acknowledged") from None
            if b'"error"' in data or b"HMSG " in data:
                raise BenchmarkError(repr(data[-300:]))
            acknowledged += data.count(b'"seq"')
            tail = data[-4:]


def check(node: LoneNode, streams: int, acknowledged: int) -> None:
    """Nothing that was acknowledged is missing."""
    stored = 0
    for number in range(streams):
        state = node.ask(f"STREAM.INFO.s{number}")["state"]
        assert isinstance(state, dict)
        stored += int(state["messages"])
    if stored < acknowledged:
        raise BenchmarkError(f"{acknowledged} records were acknowledged, {stored} are there")


def idle(node: LoneNode, seconds: float, name: str) -> None:
    """The share of a core while nobody asks for anything."""
    if not seconds:
        return
    time.sleep(SETTLE_S)
    before = cpu_seconds([node.node_pid])
    time.sleep(seconds)
    used = cpu_seconds([node.node_pid]) - before
    memory = round(resident_mib([node.node_pid]), 1)
    tell(step=f"idle, {name}", core_percent=round(100 * used / seconds, 2), resident_mib=memory)


# A soak


def soak(options: argparse.Namespace, directory: Path) -> int:
    streams = options.streams or SOAK_STREAMS
    partitions = options.partitions or SOAK_PARTITIONS
    sync = options.sync or "commit"
    settings = f'[log]\nsync = "{sync}"\nretention_check_ms = 1000\n{options.settings}'
    node = LoneNode(directory / "node", settings=settings)
    try:
        node.start()
        names = [f"s{number}" for number in range(streams)]
        limits = {
            "streamlog.partitions": str(partitions // streams),
            "streamlog.segment_bytes": str(SEGMENT_BYTES),
        }
        create(node, names, {"max_bytes": PARTITION_BYTES}, limits)
        subjects = [it for name in names for it in subjects_of(name, partitions // streams)]
        until_led(node, subjects)
        samples = list(sampled(node, subjects, options.rate, options.minutes))
    finally:
        node.stop()
    return judge(samples)


def sampled(
    node: LoneNode, subjects: Sequence[str], rate: float, minutes: float
) -> Iterator[tuple[float, float, float]]:
    """Publish at that rate; now and then the minute, what is on the disk and the node's own memory,
    both in MiB."""
    body, sent, acknowledged, due = b"x" * RECORD_BYTES, 0, 0, 0.0
    began = time.monotonic()
    tail = b""
    with Connection(node.nats) as connection:
        connection.subscribe(INBOX, 1)
        while (now := time.monotonic() - began) < minutes * 60:
            lines: list[bytes] = []
            while sent < now * rate:
                head = b"%s %s %d" % (
                    subjects[sent % len(subjects)].encode(),
                    INBOX.encode(),
                    len(body),
                )
                lines.append(b"PUB %s\r\n%s\r\n" % (head, body))
                sent += 1
            connection.send(b"".join(lines))
            while acknowledged < sent:
                data = tail + connection.receive()
                if b'"error"' in data or b"HMSG " in data:
                    raise BenchmarkError(repr(data[-300:]))
                if b"PING\r\n" in data:
                    connection.send(b"PONG\r\n")
                acknowledged += data.count(b'"seq"')
                tail = data[-4:]
            if now >= due:
                due += SAMPLE_S
                stored = stored_mib(node.streams)
                anonymous, resident = memory_mib(node.node_pid)
                yield now / 60, stored, anonymous
                tell(
                    minute=round(now / 60, 2), disk_mib=round(stored, 1),
                    anonymous_mib=round(anonymous, 2), resident_mib=round(resident, 2),
                    messages=sent, cpu_s=round(cpu_seconds([node.node_pid]), 1),
                )  # fmt: skip
            time.sleep(TICK_S)


def stored_mib(folder: Path) -> float:
    """What the segments have."""
    total = 0
    for path in folder.rglob("*.log"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total / MIB


def memory_mib(pid: int) -> tuple[float, float]:
    """A process's own memory, and all that is resident: mapped files and the like come and go."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = {
        name: int(rest.split()[0])
        for name, _, rest in (it.partition(":") for it in lines)
        if name in ("RssAnon", "VmRSS")
    }
    return kib["RssAnon"] / 1024, kib["VmRSS"] / 1024


def judge(samples: Sequence[tuple[float, float, float]]) -> int:
    """Once disk use has levelled: how fast memory grows in each third of what is left."""
    most = median(stored for _, stored, _ in samples[len(samples) // 2 :])
    level = next(at for at, (_, stored, _) in enumerate(samples) if stored >= LEVEL * most)
    after = samples[level:]
    third = len(after) // 3
    if third < 2:
        tell(verdict="too short to tell")
        return 1
    slopes = [
        linear_regression([it[0] for it in part], [it[2] for it in part]).slope
        for part in (after[:third], after[third : 2 * third], after[2 * third :])
    ]
    ends = slopes[-1] <= GROWTH_MAX
    tell(
        levelled_at_minute=round(after[0][0], 2),
        mib_per_minute=[round(it, 3) for it in slopes],
        first_mib=round(after[0][2], 2),
        last_mib=round(after[-1][2], 2),
        verdict="memory levels" if ends else "memory goes on growing",
    )
    return 0 if ends else 1


if __name__ == "__main__":
    sys.exit(main())
