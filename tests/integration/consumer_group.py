"""A consumer group of real processes, and a producer for it to keep up with."""

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.group_history import GroupHistory
from tools.nodes.server_process import ServerProcess

PROGRAM: Final = Path(__file__).with_name("group_member.py")
SESSION_MS: Final = 6_000
STOP_TIMEOUT_S: Final = 60.0
FLUSH_S: Final = 120.0
WAIT_S: Final = 180.0
LOOK_S: Final = 0.2


class Member(ServerProcess):
    """One consumer."""

    def __init__(self, name: str, directory: Path, settings: dict[str, Any]) -> None:
        self.name = name
        self.journal = directory / f"{name}.journal"
        self.journal.touch()
        content = {**settings, "client_id": name, "journal": str(self.journal)}
        command = [sys.executable, str(PROGRAM), json.dumps(content)]
        super().__init__(command, directory / f"{name}.log")


class ConsumerGroup:
    """``with ConsumerGroup(...) as group``: starts, kills and stops members, and reads what they
    have written down.
    """

    def __init__(
        self, directory: Path, servers: str, group_id: str, topic: str, **settings: Any
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.group_id = group_id
        self.killed: dict[str, int] = {}
        """When, by name."""
        self._directory = directory
        self._settings = {
            "servers": servers,
            "group": group_id,
            "topic": topic,
            "protocol": "classic",
            "assignor": "range",
            "session_ms": SESSION_MS,
            "batch": 200,
            "pause_ms": 1,
            "commit_ms": 200,
            **settings,
        }
        self._members: list[Member] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self._members:
            member.kill()

    @property
    def running(self) -> list[Member]:
        for member in self._members:
            ended = member.name not in self.killed and not member.is_running()
            assert not ended, f"{member.name} ended:\n{member.log_text()[-4000:]}"
        return [it for it in self._members if it.is_running()]

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            name = f"{self.group_id}-{len(self._members)}"
            member = Member(name, self._directory, self._settings)
            self._members.append(member)
            member.spawn()

    def kill(self, member: Member) -> None:
        """As a crash: the group hears of it when its session ends."""
        self.killed[member.name] = time.monotonic_ns()
        member.kill()

    def stop(self) -> None:
        """All commit, and leave."""
        members = self.running
        for member in members:
            member.ask_to_stop()
        for member in members:
            code = member.wait(STOP_TIMEOUT_S)
            assert code == 0, f"{member.name} ended with {code}:\n{member.log_text()[-4000:]}"

    def wait_for(self, condition: Callable[[GroupHistory], bool], what: str) -> None:
        """Look at what is written down, now and then; fail with ``what`` when it does not come."""
        deadline = time.monotonic() + WAIT_S
        while not condition(self.history()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {WAIT_S} s, {self.history().committed()}")
            time.sleep(LOOK_S)

    def history(self) -> GroupHistory:
        return GroupHistory.read((it.journal for it in self._members), self.killed)


class Load:
    """``with Load(...) as load``: an idempotent producer sends ``count`` records, spread over the
    partitions in turn, at ``rate`` a second.
    """

    def __init__(
        self, servers: str, topic: str, *, partitions: int, count: int, rate: float
    ) -> None:
        from confluent_kafka import Producer

        self.acked = 0
        self.problems: list[object] = []
        self.done = threading.Event()
        self._topic = topic
        self._partitions = partitions
        self._count = count
        self._rate = rate
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                "socket.timeout.ms": 10_000,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "queue.buffering.max.messages": 2_000_000,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.join()

    @property
    def ends(self) -> dict[int, int]:
        """The log end of each partition, when all is sent: each record is there once."""
        whole, rest = divmod(self._count, self._partitions)
        return {it: whole + (it < rest) for it in range(self._partitions)}

    def check(self) -> None:
        """Everything was acknowledged."""
        assert self.problems == []
        assert self.acked == self._count

    def _run(self) -> None:
        try:
            began = time.monotonic()
            for number in range(self._count):
                value = b"%016d" % number
                self._producer.produce(
                    self._topic, value, partition=number % self._partitions, on_delivery=self._told
                )
                self._producer.poll(0)
                ahead_s = began + number / self._rate - time.monotonic()
                if ahead_s > 0.01:
                    time.sleep(ahead_s)
            self._producer.flush(FLUSH_S)
        finally:
            self.done.set()

    def _told(self, error: object, _: object) -> None:
        if error is not None:
            self.problems.append(error)
        else:
            self.acked += 1
