"""Clients of nats-py: publishers with message ids, a work queue and its workers, a bucket, streams that come and go."""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StreamConfig
from nats.js.errors import NotFoundError

from tests.soak.progress import Progress

T = TypeVar("T")

FAILED: Final = (nats.errors.Error, nats.js.errors.Error, TimeoutError)
"""What a client may be told while a fault is felt."""

ORDERS: Final = "orders"
ORDER_PARTITIONS: Final = 3
JOBS: Final = "jobs"
BUCKET: Final = "settings"
REPLICAS: Final = 3
KEPT_S: Final = 300
"""The age at which records go: soon files come and go."""
SEGMENT_BYTES: Final = 1 << 20
PAYLOAD_BYTES: Final = 200
PUBLISHERS: Final = 20
WORKERS: Final = 2
KEYS: Final = 500
ACK_TIMEOUT_S: Final = 2.0
RETRY_S: Final = 0.1
PATIENCE_S: Final = 120.0
MSG_ID: Final = "Nats-Msg-Id"


def padded(text: str) -> bytes:
    return text.encode().ljust(PAYLOAD_BYTES, b".")


class NatsLoad:
    """``run`` works until ``stop``; then ``finish`` waits until all is done that was begun, and looks at it."""

    def __init__(self, servers: Sequence[str], progress: Progress, rate: float, piece: int) -> None:
        """``rate``: messages a second of the publishers together."""
        self._servers = list(servers)
        self._progress = progress
        self._rate = rate
        self._piece = piece
        self._random = random.Random(piece)
        self._stop = asyncio.Event()
        self.published: dict[str, int] = {}
        """The next number of each publisher of orders."""
        self._jobs_done: set[int] = set()
        self._jobs_end = 0
        self._values: dict[str, int] = {}

    async def connect(self) -> Client:
        async def ignore(_: Exception) -> None:
            """Connections end with their nodes."""

        return await nats.connect(
            self._servers,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.2,
            ping_interval=5,
            error_cb=ignore,
        )

    async def prepare(self) -> None:
        client = await self.connect()
        context = client.jetstream(timeout=5)
        small = {"streamlog.segment_bytes": str(SEGMENT_BYTES)}
        parts = {**small, "streamlog.partitions": str(ORDER_PARTITIONS)}
        subjects = [f"{ORDERS}.*"]
        orders = StreamConfig(
            name=ORDERS,
            subjects=subjects,
            num_replicas=REPLICAS,
            max_age=KEPT_S,
            metadata=parts,
        )
        jobs = StreamConfig(
            name=JOBS,
            subjects=[JOBS],
            num_replicas=REPLICAS,
            retention=RetentionPolicy.WORK_QUEUE,
            metadata=small,
        )
        await until_done(lambda: context.add_stream(orders))
        await until_done(lambda: context.add_stream(jobs))
        await until_done(
            lambda: context.create_key_value(bucket=BUCKET, history=5, replicas=REPLICAS)
        )
        workers = ConsumerConfig(
            durable_name="workers", ack_policy=AckPolicy.EXPLICIT, ack_wait=10, max_ack_pending=500
        )
        await until_done(lambda: context.add_consumer(JOBS, workers))
        await client.close()

    async def run(self) -> None:
        client = await self.connect()
        context = client.jetstream(timeout=5)
        async with asyncio.TaskGroup() as group:
            for number in range(PUBLISHERS):
                group.create_task(self._publish(context, number))
            group.create_task(self._publish_jobs(context))
            for _ in range(WORKERS):
                group.create_task(self._work(context))
            group.create_task(self._put(context))
            group.create_task(self._come_and_go())
        await client.close()

    def stop(self) -> None:
        self._stop.set()

    async def finish(self) -> None:
        client = await self.connect()
        context = client.jetstream(timeout=5)
        self._stop.clear()
        workers = [asyncio.create_task(self._work(context)) for _ in range(WORKERS)]
        deadline = time.monotonic() + PATIENCE_S
        while len(self._jobs_done) < self._jobs_end and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(RETRY_S)
        self._stop.set()
        await asyncio.gather(*workers)
        if missing := set(range(self._jobs_end)) - self._jobs_done:
            self._progress.violated(
                f"jobs: {len(missing)} were not delivered: {sorted(missing)[:5]}"
            )
        state = (await until_done(lambda: context.stream_info(JOBS))).state
        while state.messages and time.monotonic() < deadline:
            await asyncio.sleep(RETRY_S)
            state = (await until_done(lambda: context.stream_info(JOBS))).state
        if state.messages:
            info = await until_done(lambda: context.consumer_info(JOBS, "workers"))
            self._progress.violated(
                f"jobs: {state.messages} messages stay in the work queue from {state.first_seq} to {state.last_seq},"
                f" {info.num_ack_pending} of them pending, acknowledged up to {info.ack_floor}"
            )
        bucket = await until_done(lambda: context.key_value(BUCKET))
        for key, value in self._values.items():
            entry = await until_done(lambda key=key: bucket.get(key))  # type: ignore[misc]
            if entry.value is None or int(entry.value) < value:
                self._progress.violated(f"bucket: {key} is {entry.value!r}, and {value} was put")
        await client.close()

    async def _publish(self, context: JetStreamContext, number: int) -> None:
        """One message at a time, so that its numbers are in their order whatever is tried again."""
        name, gap_s, due = f"{self._piece}p{number}", PUBLISHERS / self._rate, time.monotonic()
        due += gap_s * number / PUBLISHERS
        count = 0
        while not await self._paused_until(due):
            due = max(due + gap_s, time.monotonic() - 1)
            began = time.monotonic()
            headers = {MSG_ID: f"{name}-{count}"}
            await self._until_acked(
                context, f"{ORDERS}.{number}", padded(f"{name}:{count}:"), headers
            )
            self._progress.acknowledged(began)
            self._progress.count("orders")
            count += 1
            self.published[name] = count

    async def _publish_jobs(self, context: JetStreamContext) -> None:
        due, gap_s = time.monotonic(), 10 / self._rate
        while not await self._paused_until(due):
            due = max(due + gap_s, time.monotonic() - 1)
            number = self._jobs_end
            self._jobs_end += 1
            headers = {MSG_ID: f"job-{self._piece}-{number}"}
            await self._until_acked(context, JOBS, padded(f"{self._piece}:{number}:"), headers)
            self._progress.count("jobs")

    async def _until_acked(
        self, context: JetStreamContext, subject: str, data: bytes, headers: dict[str, str]
    ) -> None:
        """Tried again with its id, also after the end of the soak: then it is known what is stored."""
        while True:
            try:
                await context.publish(subject, data, timeout=ACK_TIMEOUT_S, headers=headers)
            except FAILED:
                self._progress.count("tried again")
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _work(self, context: JetStreamContext) -> None:
        while not self._stop.is_set():
            try:
                pulling = await context.pull_subscribe_bind("workers", JOBS)
            except FAILED:
                await asyncio.sleep(RETRY_S)
                continue
            with contextlib.suppress(*FAILED):
                while not self._stop.is_set():
                    try:
                        messages = await pulling.fetch(20, timeout=2)
                    except TimeoutError:
                        continue
                    for it in messages:
                        piece, number = it.data.split(b":")[:2]
                        if int(piece) == self._piece:
                            self._jobs_done.add(int(number))
                        await it.ack_sync(timeout=ACK_TIMEOUT_S)
                        self._progress.count("jobs done")
            with contextlib.suppress(*FAILED):
                await pulling.unsubscribe()

    async def _put(self, context: JetStreamContext) -> None:
        bucket = await until_done(lambda: context.key_value(BUCKET))
        due, gap_s, value = time.monotonic(), 10 / self._rate, int(time.time() * 1000)
        while not await self._paused_until(due):
            due = max(due + gap_s, time.monotonic() - 1)
            key = f"key-{self._random.randrange(KEYS)}"
            value += 1
            with contextlib.suppress(*FAILED):
                await bucket.put(key, str(value).encode())
                self._values[key] = value
                self._progress.count("puts")

    async def _come_and_go(self) -> None:
        """A connection, a stream and an ephemeral consumer for a moment; names come again."""
        number = 0
        while not await self._paused_until(time.monotonic() + 5):
            name = f"moment-{number % 3}"
            number += 1
            client = await self.connect()
            context = client.jetstream(timeout=5)
            try:
                with contextlib.suppress(NotFoundError):
                    await context.delete_stream(name)
                await context.add_stream(
                    StreamConfig(name=name, subjects=[name], num_replicas=REPLICAS)
                )
                for at in range(10):
                    await context.publish(name, padded(str(at)), timeout=ACK_TIMEOUT_S)
                reading = await context.subscribe(name, stream=name, ordered_consumer=True)
                for _ in range(10):
                    await reading.next_msg(timeout=5)
                await reading.unsubscribe()
                await context.delete_stream(name)
                self._progress.count("moments")
            except FAILED:
                self._progress.count("moments cut short")
            finally:
                await client.close()

    async def _paused_until(self, due: float) -> bool:
        """Whether the soak has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, due - time.monotonic())):
                await self._stop.wait()
        return self._stop.is_set()


async def until_done(ask: Callable[[], Awaitable[T]]) -> T:
    """Requests may go unanswered while a fault is felt."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await ask()
        except FAILED:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(RETRY_S)


def order_of(value: bytes) -> tuple[str, int]:
    """Publisher and number."""
    publisher, number, _ = value.split(b":", 2)
    return publisher.decode(), int(number)
