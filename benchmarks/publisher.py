"""The publisher of every case: prebuilt ``PUB`` lines over one raw socket, acks counted in bytes.

``python -m benchmarks.publisher acked|fenced|unacked|headed|...`` prints one line of JSON.

``acked``    every message asks for an ack; ``--in-flight`` of them may be open
``fenced``   only the last of every 200 asks for one, so that no queue on the way can overflow
``unacked``  none asks; what is stored is counted afterwards
``headed``   as ``acked``, each message built for itself, with what ``--kind`` says in its headers
``core``     nobody listens: what the program and the router can do
``latency``  acks timed at a fixed rate
``paced``    at ``--rate`` on the average, slower where the server is; 0: all at once, and refusals
             are counted, not an error
"""

import argparse
import json
import random
import re
import select
import sys
import time
from dataclasses import dataclass, replace

from benchmarks import headed
from benchmarks.connection import TAIL_BYTES, BenchmarkError, Connection

CHUNK = 200
"""Messages in one write."""

RING = 40
"""Prebuilt writes used in turn, so 8,000 distinct reply subjects: more than are ever in flight."""

STORED_POLL_S = 0.005
STALL_S = 2.0
"""No more is stored for so long: what is missing then is lost."""

SCATTERED_RING = 250
"""The same where each message has a subject or a payload of its own: 50,000 of them."""

PAYLOAD_POOL_BYTES = 4 << 20
PAYLOAD_STEP_BYTES = 2_592_161
"""Distinct payloads are cut from one text, by the golden ratio: where two overlap, they are so far
apart in the stream that a codec which looks back for less than a megabyte gains nothing."""

WARM_UP_SHARE = 50
"""One message in so many is published before the clock starts."""

MODES = ("acked", "fenced", "unacked", "headed", "core", "latency", "paced")

_REPLY = re.compile(rb"MSG _INBOX\.\w+\.(\d+) ")


@dataclass(frozen=True)
class Load:
    """What to publish, and where to."""

    nats: str
    stream: str
    subject: str
    count: int
    size: int
    in_flight: int
    subjects: int = 1
    """Above 1: a number below it, by chance, ends each message's subject."""
    distinct: bool = False
    """Each of 50,000 messages in a row has another payload, where otherwise all have the same."""
    inbox: str = "b"
    """Acks come to subjects below it; another one for each publisher of a server."""

    @property
    def replies(self) -> str:
        return f"_INBOX.{self.inbox}.*"


def payload(size: int, seed: int) -> bytes:
    """Random letters: not compressible by much, free of line ends and braces, which are counted."""
    return bytes(
        random.Random(seed).choices(
            b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", k=size
        )
    )


def payloads(load: Load, count: int) -> list[bytes]:
    if not load.distinct:
        return [payload(load.size, seed=load.size)]
    text, step = payload(load.size + PAYLOAD_POOL_BYTES, seed=load.size), PAYLOAD_STEP_BYTES
    starts = (number * step % PAYLOAD_POOL_BYTES for number in range(count))
    return [text[start : start + load.size] for start in starts]


def writes(load: Load, *, acks_per_write: int) -> list[bytes]:
    """The ring of prebuilt writes; so many messages at the end of each ask for an ack."""
    ring = SCATTERED_RING if load.subjects > 1 or load.distinct else RING
    bodies, chance = payloads(load, ring * CHUNK), random.Random(1)

    def line(number: int) -> bytes:
        body = bodies[number % len(bodies)]
        asks = number % CHUNK >= CHUNK - acks_per_write
        reply = b"_INBOX.%s.%06d " % (load.inbox.encode(), number) if asks else b""
        subject = load.subject.encode()
        if load.subjects > 1:
            subject += b"%d" % chance.randrange(load.subjects)
        return b"PUB %s %s%d\r\n%s\r\n" % (subject, reply, load.size, body)

    return [b"".join(map(line, range(i * CHUNK, (i + 1) * CHUNK))) for i in range(ring)]


def publish(
    connection: Connection,
    ring: list[bytes],
    load: Load,
    acks_per_write: int,
    mark: bytes = b"}",
) -> None:
    """Publish ``load.count`` messages, at most ``load.in_flight`` of them not known stored.

    ``mark`` is in each ack once: of one JSON object without objects in it the closing brace.
    """
    before = len(mark) - 1  # of a mark that a read has cut, so much may be in the tail
    sent = acks = turn = 0
    buffer = connection.buffer
    acks_wanted = load.count // CHUNK * acks_per_write
    while acks < acks_wanted:
        while sent < load.count and sent - acks * CHUNK // acks_per_write + CHUNK <= load.in_flight:
            connection.send(ring[turn])
            turn = (turn + 1) % len(ring)
            sent += CHUNK
        size = connection.read()
        acks += buffer.count(mark, TAIL_BYTES - before, TAIL_BYTES + size)
        connection.refuse_errors(size)
        connection.answer_pings(size)
        connection.keep_tail(size)
    if acks != acks_wanted:
        raise BenchmarkError(f"{acks} acks for {load.count} messages")


def stored(connection: Connection, stream: str) -> int:
    """How many records the stream has, by its own account."""
    info = connection.request(f"$JS.API.STREAM.INFO.{stream}")
    state = info.get("state")
    if not isinstance(state, dict):
        raise BenchmarkError(f"no state of {stream}: {info}")
    return int(state["messages"])


def run_acked(load: Load, *, acks_per_write: int) -> dict[str, float]:
    """Rate from the first write to the last ack."""
    warm_up = replace(load, count=max(CHUNK, load.count // WARM_UP_SHARE // CHUNK * CHUNK))
    with Connection(load.nats) as connection:
        connection.subscribe(load.replies, 1)
        ring = writes(load, acks_per_write=acks_per_write)
        publish(connection, ring, warm_up, acks_per_write)
        start = time.perf_counter()
        publish(connection, ring, load, acks_per_write)
        elapsed = time.perf_counter() - start
        messages = warm_up.count + load.count
        kept = stored(connection, load.stream) if load.stream else messages
    if kept != messages:
        raise BenchmarkError(f"{messages} acknowledged, {kept} stored")
    return {"rate": load.count / elapsed, "elapsed_s": elapsed, "messages": messages}


def run_headed(load: Load, kind: str) -> dict[str, float]:
    """Rate from the first write to the last ack, of messages none of which comes twice."""
    warm_up = replace(load, count=max(CHUNK, load.count // WARM_UP_SHARE // CHUNK * CHUNK))
    messages = warm_up.count + load.count
    body = payload(load.size, seed=load.size)
    built = list(headed.lines(kind, load.subject.encode(), body, messages))
    ring = [b"".join(built[i : i + CHUNK]) for i in range(0, messages, CHUNK)]
    mark = headed.ENVELOPE_MAGIC if kind == "envelope" else b"}"
    with Connection(load.nats) as connection:
        connection.subscribe(load.replies, 1)
        first = warm_up.count // CHUNK
        publish(connection, ring[:first], warm_up, CHUNK, mark)
        start = time.perf_counter()
        publish(connection, ring[first:], load, CHUNK, mark)
        elapsed = time.perf_counter() - start
        kept = stored(connection, load.stream)
    if kept != messages:
        raise BenchmarkError(f"{messages} acknowledged, {kept} stored")
    return {"rate": load.count / elapsed, "elapsed_s": elapsed, "messages": messages}


def run_unacked(load: Load) -> dict[str, float]:
    """Rate from the first write until the last record is stored; what never is is told as lost."""
    with Connection(load.nats) as connection:
        ring = writes(load, acks_per_write=0)
        before = stored(connection, load.stream)
        start = time.perf_counter()
        for turn in range(load.count // CHUNK):
            connection.send(ring[turn % RING])
        connection.flush()
        sent = time.perf_counter()
        kept, last_rise = 0, sent
        while kept < load.count and time.perf_counter() - last_rise < STALL_S:
            now_kept = stored(connection, load.stream) - before
            if now_kept > kept:
                kept, last_rise = now_kept, time.perf_counter()
            time.sleep(STORED_POLL_S)
    return {
        "rate": kept / (last_rise - start),
        "sent_rate": load.count / (sent - start),
        "elapsed_s": last_rise - start,
        "messages": load.count,
        "lost": load.count - kept,
    }


def run_paced(load: Load, rate: int) -> dict[str, float]:
    """On schedule but for ``in_flight``; answers are read between the writes.

    At rate 0 everything is sent at once, and what is refused or never answered is lost.
    """
    answers = refused = sent = 0
    with Connection(load.nats) as connection:
        connection.subscribe(load.replies, 1)
        ring, buffer = writes(load, acks_per_write=CHUNK), connection.buffer
        start = time.perf_counter()
        while answers < load.count:
            due = sent / rate if rate else 0.0
            room = sent < load.count and sent - answers + CHUNK <= load.in_flight
            if room and time.perf_counter() - start >= due:
                connection.send(ring[sent // CHUNK % len(ring)])
                sent += CHUNK
            wait = start + due - time.perf_counter() if room else STALL_S
            if not select.select([connection.socket], [], [], max(0.0, wait))[0]:
                if not room:
                    break  # all was sent that could be, and nothing comes any more
                continue
            size = connection.read()
            answers += buffer.count(b'"seq"', TAIL_BYTES - 4, TAIL_BYTES + size)
            refused += buffer.count(b'"error"', TAIL_BYTES - 6, TAIL_BYTES + size)
            if rate:
                connection.refuse_errors(size)
            connection.answer_pings(size)
            connection.keep_tail(size)
        elapsed = time.perf_counter() - start
    if rate and answers < load.count:
        raise BenchmarkError(f"{answers} acks for {sent} messages")
    lost = load.count - answers + refused
    return {
        "rate": answers / elapsed, "elapsed_s": elapsed, "messages": load.count, "lost": lost
    }  # fmt: skip


def run_core(load: Load) -> dict[str, float]:
    """Publish to a subject that nobody listens to: what this program and the router can do."""
    with Connection(load.nats) as connection:
        ring = writes(load, acks_per_write=0)
        start = time.perf_counter()
        for turn in range(load.count // CHUNK):
            connection.send(ring[turn % RING])
        connection.flush()
        elapsed = time.perf_counter() - start
    return {"rate": load.count / elapsed, "elapsed_s": elapsed, "messages": load.count}


def run_latency(load: Load, rate: int) -> dict[str, float]:
    """Send on a fixed schedule, whatever comes back; latency counts from when a message was due."""
    lines = [
        b"PUB %s _INBOX.%s.%07d %d\r\n%s\r\n"
        % (load.subject.encode(), load.inbox.encode(), i, load.size, payload(load.size, 1))
        for i in range(load.count)
    ]
    due = [0.0] * load.count
    latencies: list[float] = []
    with Connection(load.nats) as connection:
        connection.subscribe(load.replies, 1)
        tail, sent, start = b"", 0, time.perf_counter() + 0.05
        while len(latencies) < load.count:
            now = time.perf_counter()
            while sent < load.count and start + sent / rate <= now:
                due[sent] = start + sent / rate
                connection.send(lines[sent])
                sent += 1
            wait = start + sent / rate - time.perf_counter() if sent < load.count else 5.0
            if not select.select([connection.socket], [], [], max(wait, 0.0))[0]:
                if sent == load.count:
                    raise BenchmarkError(f"{len(latencies)} acks for {sent} messages")
                continue
            size = connection.read()
            now = time.perf_counter()
            connection.refuse_errors(size)
            connection.answer_pings(size)
            data = tail + bytes(connection.buffer[TAIL_BYTES : TAIL_BYTES + size])
            connection.keep_tail(size)
            end = data.rfind(b"\r\n") + 2
            latencies += [now - due[int(found)] for found in _REPLY.findall(data, 0, end)]
            tail = data[end:]
    latencies = sorted(latencies[len(latencies) // 10 :])
    return {
        "p50_ms": 1000 * latencies[len(latencies) // 2],
        "p99_ms": 1000 * latencies[len(latencies) * 99 // 100],
        "max_ms": 1000 * latencies[-1],
        "messages": load.count,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--nats", required=True, help="host:port")
    parser.add_argument("--stream", default="", help="none: nothing is stored, do not ask")
    parser.add_argument("--subject", default="bench.a")
    parser.add_argument("--subjects", type=int, default=1, help="so many, by a number at the end")
    parser.add_argument("--distinct", action="store_true", help="payloads of their own")
    parser.add_argument("--inbox", default="b", help="where acks come to, for publishers together")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--in-flight", type=int, default=4000)
    parser.add_argument("--kind", choices=headed.KINDS, default="plain", help="for headed")
    parser.add_argument("--rate", type=int, default=10_000, help="messages a second, for latency")
    options = parser.parse_args()
    count = options.count - options.count % CHUNK
    load = Load(
        options.nats,
        options.stream,
        options.subject,
        count,
        options.size,
        options.in_flight,
        options.subjects,
        options.distinct,
        options.inbox,
    )
    try:
        match options.mode:
            case "acked":
                result = run_acked(load, acks_per_write=CHUNK)
            case "fenced":
                result = run_acked(load, acks_per_write=1)
            case "headed":
                result = run_headed(load, options.kind)
            case "unacked":
                result = run_unacked(load)
            case "core":
                result = run_core(load)
            case "paced":
                result = run_paced(load, options.rate)
            case _:
                result = run_latency(load, options.rate)
    except (BenchmarkError, OSError) as error:
        print(json.dumps({"failed": str(error) or type(error).__name__}))
        return 1
    cpu = time.process_time()
    print(json.dumps(result | {"client_cpu_s": cpu}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
