"""A member of a consumer group, as a program of its own that may be killed at any moment.

Its one argument is JSON (``Settings`` of ``consumer_group``). It keeps a journal, a line for each
event, written before it goes on, with the machine's monotonic clock in nanoseconds:

    A time partition...         assigned
    R time partition...         revoked, or lost
    P time partition first end  it began to ask for these records then, and has processed them
    C time partition offset     the broker has answered that this is committed
    X time text                 a commit that failed, or an error of the client

SIGTERM has it commit and leave the group.
"""

import json
import os
import signal
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

POLL_S = 0.1


def protocol_settings(settings: dict[str, Any]) -> dict[str, str | int]:
    """Of the consumer protocol, the coordinator knows the session timeout."""
    if settings["protocol"] == "consumer":
        return {"group.protocol": "consumer", "group.remote.assignor": settings["assignor"]}
    return {
        "partition.assignment.strategy": settings["assignor"],
        "session.timeout.ms": settings["session_ms"],
        "heartbeat.interval.ms": 500,
    }


class Member:
    """Processes records, and commits only what it has processed and written down."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._topic = settings["topic"]
        self._commit_ns = settings["commit_ms"] * 1_000_000
        self._pause_s = settings["pause_ms"] / 1000
        self._batch = settings["batch"]
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._journal = os.open(settings["journal"], flags)
        self._runs: dict[int, list[int]] = {}  # partition: since when, first, end; not yet written
        self._next: dict[int, int] = {}  # partition: what is to be committed
        self._stopping = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": settings["servers"],
                "group.id": settings["group"],
                "client.id": settings["client_id"],
                **protocol_settings(settings),
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "check.crcs": True,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "socket.timeout.ms": 5_000,
                "log_level": 3,
            }
        )

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        committed_ns = time.monotonic_ns()
        while not self._stopping:
            if self._poll_batch():
                time.sleep(self._pause_s)
            now_ns = time.monotonic_ns()
            if now_ns - committed_ns >= self._commit_ns:
                self._commit()
                committed_ns = now_ns
        self._commit()
        self._consumer.close()

    def _poll_batch(self) -> bool:
        """Whether there was anything. A rebalance may come in the middle of it."""
        for count in range(self._batch):
            began_ns = time.monotonic_ns()
            message = self._consumer.poll(0 if count else POLL_S)
            if message is None:
                break
            if message.error() is not None:
                self._write("X", message.error())
            else:
                self._process(message, began_ns)
        was_any = bool(self._runs)
        self._write_runs()
        return was_any

    def _process(self, message: Message, began_ns: int) -> None:
        partition, offset = message.partition(), message.offset()
        assert partition is not None and offset is not None
        run = self._runs.get(partition)
        if run is not None and run[2] == offset:
            run[2] = offset + 1
            return
        if run is not None:
            self._write_runs()
        self._runs[partition] = [began_ns, offset, offset + 1]

    def _write_runs(self) -> None:
        for partition, (began_ns, first, end) in self._runs.items():
            self._write("P", partition, first, end, at_ns=began_ns)
            self._next[partition] = end
        self._runs.clear()

    def _commit(self) -> None:
        self._write_runs()
        wanted = [TopicPartition(self._topic, it, end) for it, end in self._next.items()]
        if not wanted:
            return
        try:
            answered = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            self._write("X", error)
            return
        for it in answered or ():
            if it.error is None:
                self._write("C", it.partition, it.offset)
                self._next.pop(it.partition, None)
            else:
                self._write("X", it.error)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._write("A", *(it.partition for it in partitions))

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()
        self._forget(partitions)

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Others have them by now: there is nothing to be committed."""
        self._write_runs()
        self._forget(partitions)

    def _forget(self, partitions: list[TopicPartition]) -> None:
        for it in partitions:
            self._next.pop(it.partition, None)
        self._write("R", *(it.partition for it in partitions))

    def _write(self, kind: str, *fields: object, at_ns: int | None = None) -> None:
        now_ns = time.monotonic_ns() if at_ns is None else at_ns
        os.write(self._journal, " ".join(map(str, (kind, now_ns, *fields))).encode() + b"\n")

    def _stop(self, *_: object) -> None:
        self._stopping = True


if __name__ == "__main__":
    Member(json.loads(sys.argv[1])).run()
