"""Kafka's console tools: the contract in front of their command lines."""

import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from contract import NotOffered, answer_calls, end_of_input, input_lines, put, put_answer, run

JAVA = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSOLE_SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
TOPICS = "org.apache.kafka.tools.TopicCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"

RECORD = re.compile(r"^Partition:(\d+)\tOffset:(\d+)\t(.*)$")
PRINTED = ("print.partition", "print.offset")
DELIVERED = re.compile(r"^Partition:(\d+)\tOffset:(\d+)\tDelivery:(\d+)\t(.*)$")
DELIVERY_PRINTED = (*PRINTED, "print.delivery")


def tool(name: str, *options: str) -> str:
    """What it prints; RuntimeError with its last words if it fails."""
    done = subprocess.run([*JAVA, name, *options], capture_output=True, text=True, check=False)
    if done.returncode or "Error" in done.stderr:
        lines = (done.stderr + done.stdout).strip().splitlines()
        said = next((line for line in lines if "Error" in line or "Exception" in line), "")
        raise RuntimeError(f"{name.rpartition('.')[2]}: {said or lines[-1:]}")
    return done.stdout


def version() -> str:
    return tool(TOPICS, "--version").split()[0]


def consume(
    servers: str,
    *,
    topic: str,
    partition: int,
    offset: int = 0,
    time_ms: int | None = None,
    committed: bool = False,
) -> None:
    if time_ms is not None:
        put(note="kafka-get-offsets tells where the time begins")
        offset = end(servers, topic, partition, str(time_ms))
    options = ["--topic", topic, "--partition", str(partition), "--offset", str(offset)]
    if committed:
        options += ["--isolation-level", "read_committed"]
    _print(_reading(CONSOLE_CONSUMER, servers, PRINTED, *options), _put_printed)


def group(
    servers: str,
    *,
    topic: str,
    group: str,
    client_id: str,
    count: int | None = None,
    protocol: str = "classic",
) -> None:
    settings = {"client.id": client_id, "group.protocol": protocol}
    options = ["--topic", topic, "--group", group, "--from-beginning"]
    for name, value in settings.items():
        options += ["--command-property", f"{name}={value}"]
    if count is not None:
        options += ["--max-messages", str(count)]
    _print(_reading(CONSOLE_CONSUMER, servers, PRINTED, *options), _put_printed)


def share(servers: str, topic: str, group: str, client_id: str, release: int = 0) -> None:
    """It does one with all that it reads: first it runs for those to release, then for the rest."""
    put(note="does not say when an answer counts")
    options = ["--topic", topic, "--group", group, "--command-property", f"client.id={client_id}"]
    command = _reading(CONSOLE_SHARE_CONSUMER, servers, DELIVERY_PRINTED, *options)
    ended = end_of_input()
    if release:
        releasing = [*command, "--release", "--max-messages", str(release)]
        _print(releasing, lambda line: _put_answered(line, is_accepted=False), ended)
    _print(command, lambda line: _put_answered(line, is_accepted=True), ended)


def _reading(name: str, servers: str, printed: Iterable[str], *options: str) -> list[str]:
    formatted = [word for it in printed for word in ("--formatter-property", f"{it}=true")]
    return [*JAVA, name, "--bootstrap-server", servers, *formatted, *options]


def _print(
    command: list[str], put_line: Callable[[str], None], ended: threading.Event | None = None
) -> None:
    """What the tool prints, until it or the input ends."""
    ended = ended or end_of_input()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        threading.Thread(
            target=lambda: (ended.wait(), process.send_signal(signal.SIGTERM)), daemon=True
        ).start()
        assert process.stdout is not None
        for line in process.stdout:
            put_line(line.rstrip("\n"))
    if process.returncode not in (0, 128 + signal.SIGTERM):
        sys.exit(process.returncode)


def _put_printed(line: str) -> None:
    record = RECORD.match(line)
    if record is not None:
        put(partition=int(record[1]), offset=int(record[2]), value=record[3])
    else:
        sys.stderr.write(line + "\n")


def _put_answered(line: str, *, is_accepted: bool) -> None:
    record = DELIVERED.match(line)
    if record is None:
        sys.stderr.write(line + "\n")
        return
    partition, offset, deliveries = (int(record[it]) for it in (1, 2, 3))
    put_answer(partition, offset, record[4].encode(), deliveries, is_accepted)


def produce(servers: str, topic: str, partition: int, codec: str, idempotent: bool) -> None:
    """It does not tell what is acknowledged: at the end, all is, or it says what is not."""
    if partition:
        raise NotOffered("kafka-console-producer chooses the partition")
    properties = {"enable.idempotence": str(idempotent).lower(), "acks": "all"}
    options = [w for k, v in properties.items() for w in ("--producer-property", f"{k}={v}")]
    options += ["--compression-codec", codec, "--timeout", "20"]
    command = [*JAVA, CONSOLE_PRODUCER, "--bootstrap-server", servers, "--topic", topic, *options]
    sent: list[str] = []
    problems: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stderr is not None
        watchers = [
            threading.Thread(target=_watch, args=(pipe, problems))
            for pipe in (process.stdout, process.stderr)
        ]
        for watcher in watchers:
            watcher.start()
        for line in input_lines():
            sent.append(line)
            process.stdin.write(line + "\n")
            process.stdin.flush()
        process.stdin.close()
        for watcher in watchers:
            watcher.join()
    if process.returncode or problems:
        put(error=(problems or [f"ended with {process.returncode}"])[0])
        return
    for line in sent:
        put(offset=None, value=line)


def _watch(output: Iterable[str], problems: list[str]) -> None:
    for line in output:
        sys.stderr.write(line)
        if "ERROR" in line or "Exception" in line:
            problems.append(line.strip())


def end(servers: str, topic: str, partition: int, time: str) -> int:
    """Of ``kafka-get-offsets``: earliest, latest, or the first record of a time."""
    place = ("--topic-partitions", f"{topic}:{partition}", "--time", time)
    told = tool(GET_OFFSETS, "--bootstrap-server", servers, *place)
    return int(told.strip().rpartition(":")[2])


def admin(servers: str) -> None:
    calls = Calls(servers)
    names = [name for name in vars(Calls) if not name.startswith("_")]
    answer_calls({name: getattr(calls, name) for name in names})


class Calls:
    """A tool for each operation."""

    def __init__(self, servers: str) -> None:
        self._servers = servers

    def _tool(self, name: str, *options: str) -> str:
        return tool(name, "--bootstrap-server", self._servers, *options)

    def create(self, topic: str, partitions: int, replicas: int, configs: dict[str, str]) -> None:
        options = ["--partitions", str(partitions), "--replication-factor", str(replicas)]
        for name, value in configs.items():
            options += ["--config", f"{name}={value}"]
        self._tool(TOPICS, "--create", "--topic", topic, *options)

    def widen(self, topic: str, partitions: int) -> None:
        self._tool(TOPICS, "--alter", "--topic", topic, "--partitions", str(partitions))

    def delete(self, topic: str) -> None:
        self._tool(TOPICS, "--delete", "--topic", topic)

    def topics(self) -> dict[str, Any]:
        return {"topics": self._tool(TOPICS, "--list").split()}

    def describe(self, topic: str) -> dict[str, Any]:
        told = self._tool(TOPICS, "--describe", "--topic", topic)
        return {"partitions": len(re.findall(r"^\tTopic: ", told, re.MULTILINE))}

    def configs(self, topic: str) -> dict[str, Any]:
        told = self._tool(CONFIGS, "--describe", "--all", "--topic", topic)
        return {"configs": dict(re.findall(r"^\s+([a-z.]+)=(\S*) ", told, re.MULTILINE))}

    def set(self, topic: str, configs: dict[str, str]) -> None:
        wanted = ",".join(f"{name}={value}" for name, value in configs.items())
        self._tool(CONFIGS, "--alter", "--topic", topic, "--add-config", wanted)

    def ends(self, topic: str, partition: int) -> dict[str, Any]:
        return {name: end(self._servers, topic, partition, name) for name in ("earliest", "latest")}

    def purge(self, topic: str, partition: int, offset: int) -> None:
        wanted = {"topic": topic, "partition": partition, "offset": offset}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "offsets.json"
            file.write_text(json.dumps({"partitions": [wanted], "version": 1}))
            self._tool(DELETE_RECORDS, "--offset-json-file", str(file))

    def groups(self) -> dict[str, Any]:
        return {"groups": self._tool(GROUPS, "--list").split()}

    def members(self, group: str) -> dict[str, Any]:
        told = self._tool(GROUPS, "--describe", "--group", group, "--members")
        return {"members": sum(line.startswith(group) for line in told.splitlines())}

    def committed(self, group: str, topic: str) -> dict[str, Any]:
        """Columns: group, topic, partition, current offset."""
        rows = (
            row.split() for row in self._tool(GROUPS, "--describe", "--group", group).splitlines()
        )
        return {"offsets": {row[2]: int(row[3]) for row in rows if row[:2] == [group, topic]}}

    def reset(self, group: str, topic: str, partition: int, offset: int) -> None:
        place = ("--topic", f"{topic}:{partition}", "--to-offset", str(offset), "--execute")
        self._tool(GROUPS, "--reset-offsets", "--group", group, *place)

    def forget(self, group: str) -> None:
        self._tool(GROUPS, "--delete", "--group", group)


def dump(_: str, file: str) -> None:
    """kafka-dump-log."""
    told = tool(DUMP_LOG, "--files", file, "--print-data-log", "--deep-iteration")
    for offset, value in re.findall(r"^\| offset: (\d+) .* payload: (.*)$", told, re.MULTILINE):
        put(offset=int(offset), value=value)


if __name__ == "__main__":
    verbs = {"consume": consume, "group": group, "share": share, "produce": produce}
    run(version, {**verbs, "admin": admin, "dump": dump})
