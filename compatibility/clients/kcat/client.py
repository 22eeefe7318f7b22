"""kcat: the contract in front of its command line."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from contract import NotOffered, answer_calls, end_of_input, input_lines, put, run

FORMAT = "%p %o %s\n"
DELIVERED = re.compile(r"delivered to partition \d+ \(offset (\d+)\)")


def version() -> str:
    told = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
    own = re.search(r"Version (\S+) ", told)
    library = re.search(r"librdkafka ([0-9.]+)", told)
    assert own is not None and library is not None
    return f"{own[1]} (librdkafka {library[1]})"


def consume(
    servers: str,
    *,
    topic: str,
    partition: int,
    offset: int = 0,
    time_ms: int | None = None,
    committed: bool = False,
) -> None:
    start = str(offset) if time_ms is None else f"s@{time_ms}"
    options = ["-C", "-t", topic, "-p", str(partition), "-o", start, "-X", "check.crcs=true"]
    options += ["-X", f"isolation.level={'read_committed' if committed else 'read_uncommitted'}"]
    _read(["kcat", "-b", servers, *options])


def group(
    servers: str,
    *,
    topic: str,
    group: str,
    client_id: str,
    count: int | None = None,
    protocol: str = "classic",
) -> None:
    if protocol != "classic":
        raise NotOffered("no group.protocol before librdkafka 2.4")
    settings = {"client.id": client_id, "auto.offset.reset": "earliest"}
    options = [f"-X{name}={value}" for name, value in settings.items()]
    if count is not None:
        options += ["-c", str(count)]
    _read(["kcat", "-b", servers, *options, "-G", group, topic])


def _read(command: list[str]) -> None:
    """Until there is no more input, or it ends by itself."""
    command[1:1] = ["-q", "-u", "-f", FORMAT]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        ended = end_of_input()
        threading.Thread(
            target=lambda: (ended.wait(), process.send_signal(signal.SIGTERM)), daemon=True
        ).start()
        assert process.stdout is not None
        for line in process.stdout:
            partition, offset, value = line.rstrip("\n").split(" ", 2)
            put(partition=int(partition), offset=int(offset), value=value)
    if process.returncode:
        sys.exit(process.returncode)


def produce(servers: str, topic: str, partition: int, codec: str, idempotent: bool) -> None:
    """It says of each message where it went, in the order in which it has sent them."""
    settings = {"enable.idempotence": str(idempotent).lower(), "acks": "all", "linger.ms": "20"}
    options = [f"-X{name}={value}" for name, value in settings.items()]
    command = ["kcat", "-vvv", "-b", servers, *options, "-P", "-t", topic, "-p", str(partition)]
    command += ["-z", codec]
    sent: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        teller = threading.Thread(target=_tell, args=(process.stderr, sent))
        teller.start()
        for line in input_lines():
            sent.append(line)
            process.stdin.write(line + "\n")
        process.stdin.close()
        teller.join()
    if process.returncode:
        sys.exit(process.returncode)


def _tell(errors: Iterable[str], sent: list[str]) -> None:
    told = 0
    for line in errors:
        delivered = DELIVERED.search(line)
        if delivered is None:
            sys.stderr.write(line)
            continue
        put(offset=int(delivered[1]), value=sent[told])
        told += 1


def admin(servers: str) -> None:
    def metadata(*options: str) -> Iterator[str]:
        command = ["kcat", "-b", servers, "-L", *options]
        told = subprocess.run(command, capture_output=True, text=True, check=True)
        yield from told.stdout.splitlines()

    def topics() -> dict[str, Any]:
        found = (re.match(r'  topic "([^"]+)" with', line) for line in metadata())
        return {"topics": [it[1] for it in found if it is not None]}

    def describe(topic: str) -> dict[str, Any]:
        lines = metadata("-t", topic)
        return {"partitions": sum(line.startswith("    partition ") for line in lines)}

    def ends(topic: str, partition: int) -> dict[str, Any]:
        found = {}
        for name, time_ms in (("earliest", -2), ("latest", -1)):
            command = ["kcat", "-b", servers, "-Q", "-t", f"{topic}:{partition}:{time_ms}"]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            found[name] = int(told.rpartition("offset ")[2])
        return found

    answer_calls({"topics": topics, "describe": describe, "ends": ends})


if __name__ == "__main__":
    run(version, {"consume": consume, "group": group, "produce": produce, "admin": admin})
