"""The node's own NATS port: messages that go straight into the log, beside JetStream's; and core NATS beside
nats-server.

Many connections are driven by ``connections.c``, which costs less than any server that it measures.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks import machine
from benchmarks.case import Case, Measurement, Metric, Target, Variant
from benchmarks.cases import (
    ALWAYS,
    COUNTS,
    DELIVER_SUBJECT,
    LATENCY_COUNT,
    P50,
    P99,
    RATE,
    publishing,
)
from benchmarks.connection import BenchmarkError
from benchmarks.headers import publishing as publishing_headers
from benchmarks.processes import compiled, cpu_seconds, run_client
from benchmarks.side import (
    STREAM,
    Port,
    Side,
    Sides,
    create_consumer,
    create_push_consumer,
    create_stream,
    delete_consumer,
    delete_stream,
)
from tools.nodes.server_process import program

CPU: Final = Metric("server_us", "us of server CPU for each", digits=2, lower_is_better=True)
FDATASYNC: Final = "an fdatasync of one record, 1,000 a second"
LEAST: Final = "a server in C that only syncs and acknowledges"
LOOP: Final = "a server of 30 lines on the same event loop that only acknowledges"
CONFIRMED_COUNT: Final = 4_000
MORE: Final = 3
"""The port takes so many times the messages of the other runs: a run is a second or two."""


def _jetstream(sides: Sides) -> Side:
    return sides.jetstream


def _port(sides: Sides) -> Side:
    return sides.port


def _port_applied(sides: Sides) -> Side:
    return sides.port_applied


def connected(
    side_of: Callable[[Sides], Side], connections: int, in_flight: int, count: int, sync: str | None
) -> Callable[[Sides, float], Measurement]:
    """So many connections, each with so many messages in flight, into a fresh stream."""

    def run(sides: Sides, scale: float) -> Measurement:
        side = side_of(sides)
        create_stream(side, sync=sync)
        command = [
            compiled("connections"),
            side.nats.rpartition(":")[2],
            str(connections),
            str(in_flight),
        ]
        command += [str(int(count * scale)), "100", f"{STREAM}.a"]
        try:
            machine.settle(sides.directory)
            before = cpu_seconds(side.pids)
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            used = cpu_seconds(side.pids) - before
            found: dict[str, float] = json.loads(done.stdout)
            if "failed" in found:
                raise BenchmarkError(str(found["failed"]))
            return {**found, "server_us": 1e6 * used / found["messages"]}
        finally:
            delete_stream(side)

    return run


def acked(size: int, targets: dict[str, float]) -> Case[Sides]:
    def ours(sync: str) -> Variant[Sides]:
        run = publishing("acked", _port, size, sync=sync, share=MORE)
        wanted = [Target(RATE, targets[sync])]
        if size == 100 and sync == "os":
            wanted.append(Target(CPU, 0.1))
        return Variant(f"streamlog's port, sync={sync}", run, tuple(wanted))

    jetstream = Variant("JetStream", publishing("acked", _jetstream, size))
    named = "1 KiB" if size == 1024 else f"{size} B"
    title = f"Publish to the port, every message acked, {named}"
    return Case(f"port-acked-{size}", title, (RATE, CPU), (jetstream, ours("os"), ours("commit")))


def many(connections: int, in_flight: int, count: int, target: float | None) -> Case[Sides]:
    def ours(sync: str) -> Variant[Sides]:
        run = connected(_port, connections, in_flight, count, sync)
        targets = (Target(RATE, target),) if target is not None and sync == "os" else ()
        return Variant(f"streamlog's port, sync={sync}", run, targets)

    jetstream = Variant("JetStream", connected(_jetstream, connections, in_flight, count, None))
    one = "1 connection" if connections == 1 else f"{connections} connections"
    title = f"Publish to the port, {one}, {in_flight} in flight each, 100 B"
    variants = (jetstream, ours("os"), ours("commit"))
    return Case(f"port-{connections}x{in_flight}", title, (RATE, P50, P99), variants)


def synced(sides: Sides, scale: float) -> Measurement:
    """The file system's own time for what an ack waits for; at a rate that it can keep up with."""
    machine.settle(sides.directory)
    command = [sys.executable, "-m", "benchmarks.fdatasync", str(sides.directory)]
    command += ["--count", str(int(6_000 * scale)), "--rate", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def acked_by(
    command_of: Callable[[Sides], list[str]], rate: int, count: int
) -> Callable[[Sides, float], Measurement]:
    """Of a server that prints its port, and does no more than it has to."""

    def run(sides: Sides, scale: float) -> Measurement:
        machine.settle(sides.directory)
        command = command_of(sides)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                arguments = ["--nats", f"127.0.0.1:{server.stdout.readline().strip()}"]
                arguments += ["--count", str(int(count * scale)), "--rate", str(rate)]
                found = run_client("publisher", "latency", *arguments)
                return {**found, "server_us": 1e6 * cpu_seconds([server.pid]) / found["messages"]}
            finally:
                server.kill()

    return run


def latency(rate: int) -> Case[Sides]:
    count = LATENCY_COUNT if rate > 1_000 else 6_000

    def run(side_of: Callable[[Sides], Side], sync: str | None) -> Callable[..., Measurement]:
        return publishing(
            "latency", side_of, 100, sync=sync, count=count, more=("--rate", str(rate))
        )

    variants = (
        Variant("JetStream", run(_jetstream, None)),
        Variant(
            "streamlog's port, sync=os", run(_port, "os"), (Target(P50, 1.0), Target(P99, 1.0))
        ),
        Variant(
            LOOP, acked_by(lambda _: [sys.executable, "-m", "benchmarks.loop_server"], rate, count)
        ),
        Variant(FDATASYNC, synced),
        Variant(
            LEAST,
            acked_by(lambda it: [compiled("synced_server"), str(it.directory)], rate, count),
        ),
        Variant(ALWAYS, run(lambda sides: sides.jetstream_always, None)),
        Variant(
            "streamlog's port, sync=commit",
            run(_port, "commit"),
            (Target(P50, 1.3, beside=FDATASYNC), Target(P99, 1.3, beside=FDATASYNC)),
        ),
    )
    title = f"Ack latency at the port, {rate:,} records/s, 100 B"
    return Case(f"port-latency-{rate}", title, (P50, P99), variants)


def headed() -> Case[Sides]:
    def rows(kind: str, label: str) -> tuple[Variant[Sides], Variant[Sides]]:
        return (
            Variant(f"JetStream, {label}", publishing_headers(kind, _jetstream, None)),
            Variant(
                f"streamlog's port, {label}, sync=os",
                publishing_headers(kind, _port, "os"),
                (Target(RATE, 2.0, beside=f"JetStream, {label}"),),
            ),
        )

    variants = (
        *rows("id", "Nats-Msg-Id"),
        *rows("expectation", "Nats-Expected-Last-Sequence"),
        Variant(
            "streamlog's port, in Liftbridge's envelope, sync=os",
            publishing_headers("envelope", _port, "os"),
            (Target(RATE, 200_000, absolute=True),),
        ),
    )
    title = "Publish to the port, every message acked, with headers, 100 B"
    return Case("port-headers", title, (RATE,), variants)


def core() -> Case[Sides]:
    """One publisher, one subscriber; nothing is stored."""

    def run(side_of: Callable[[Sides], Side], count: int) -> Callable[..., Measurement]:
        def measure(sides: Sides, scale: float) -> Measurement:
            side = side_of(sides)
            messages = int(count * scale)
            command = [sys.executable, "-m", "benchmarks.subscriber", side.nats, str(messages)]
            machine.settle(sides.directory)
            before = cpu_seconds(side.pids)
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            used = cpu_seconds(side.pids) - before
            found: dict[str, float] = json.loads(done.stdout)
            return {**found, "server_us": 1e6 * used / messages}

        return measure

    variants = (
        Variant("nats-server", run(_jetstream, 2_000_000)),
        Variant("streamlog's port", run(_port, 2_000_000), (Target(RATE, 0.5),)),
    )
    title = "Core NATS, one publisher, one subscriber, 100 B, nothing stored"
    return Case("port-core", title, (RATE, CPU), variants)


def consumed(size: int) -> Case[Sides]:
    """JetStream consumers read a stream from its start: by a raw socket, and with nats-py."""
    both = (_jetstream, _port)
    raw_count, client_count = COUNTS[size] // 2, COUNTS[size] // 20

    def prepare(sides: Sides, scale: float) -> None:
        for side in (side_of(sides) for side_of in both):
            create_stream(side)
            arguments = ["--nats", side.nats, "--stream", STREAM, "--size", str(size)]
            run_client("publisher", "acked", *arguments, "--count", str(int(raw_count * scale)))

    def clear(sides: Sides) -> None:
        for side in (side_of(sides) for side_of in both):
            delete_stream(side)

    def read(
        side_of: Callable[[Sides], Side], mode: str, *more: str, ack_policy: str = "none"
    ) -> Callable[[Sides, float], Measurement]:
        """``mode``: of ``benchmarks.consumer``."""
        count = client_count if mode in ("pull", "ordered") else raw_count
        source = DELIVER_SUBJECT if mode.startswith("push") else STREAM

        def run(sides: Sides, scale: float) -> Measurement:
            side, messages = side_of(sides), int(count * scale)
            if mode.startswith("push"):
                create_push_consumer(side, DELIVER_SUBJECT, ack_policy=ack_policy)
            elif mode == "pull-raw":
                create_consumer(side, "pull")
            machine.settle(sides.directory)
            before = cpu_seconds(side.pids)
            arguments = ["--server", side.nats, "--source", source, "--count", str(messages)]
            found = run_client("consumer", mode, *arguments, "--size", str(size), *more)
            used = cpu_seconds(side.pids) - before
            if mode != "ordered":  # which is gone with its client
                delete_consumer(side, "push" if mode.startswith("push") else "pull")
            return {**found, "server_us": 1e6 * used / messages}

        return run

    variants = list[Variant[Sides]]()
    rows: tuple[tuple[str, str, tuple[str, ...], str, float], ...] = (
        ("push, raw socket", "push", (), "none", 2.0),
        ("push, each acknowledged, raw socket", "push-acked", (), "explicit", 2.0),
        ("pull by 100, raw socket", "pull-raw", ("--batch", "100"), "none", 2.0),
        ("pull by 1,000, raw socket", "pull-raw", (), "none", 2.0),
        ("pull by 100, nats-py", "pull", ("--batch", "100"), "none", 1.0),
        ("pull by 1,000, nats-py", "pull", (), "none", 1.0),
        ("ordered, nats-py", "ordered", (), "none", 1.0),
    )
    for what, mode, more, ack_policy, ratio in rows:
        peer = f"JetStream, {what}"
        variants += (
            Variant(peer, read(_jetstream, mode, *more, ack_policy=ack_policy)),
            Variant(
                f"streamlog's port, {what}",
                read(_port, mode, *more, ack_policy=ack_policy),
                (Target(RATE, ratio, beside=peer),),
            ),
        )
    for what, mode, more, count in (
        ("push, raw socket", "push", (), raw_count),
        ("pull by 100, raw socket", "pull-raw", ("--batch", "100"), raw_count),
        ("pull by 1,000, raw socket", "pull-raw", (), raw_count),
        ("pull by 100, nats-py", "pull", ("--batch", "100"), client_count),
        ("pull by 1,000, nats-py", "pull", (), client_count),
    ):
        run = _read_prebuilt(mode, more, count, size)
        variants.append(Variant(f"messages built beforehand, {what}", run))
    title = f"Read by a JetStream consumer, {'1 KiB' if size == 1024 else f'{size} B'}"
    return Case(f"port-consume-{size}", title, (RATE, CPU), tuple(variants), prepare, clear)


def _read_prebuilt(
    mode: str, more: Sequence[str], count: int, size: int
) -> Callable[[Sides, float], Measurement]:
    """From a server that does nothing but send."""

    def run(sides: Sides, scale: float) -> Measurement:
        messages = int(count * scale)
        command = [sys.executable, "-m", "benchmarks.prebuilt_server", str(size)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                address = f"127.0.0.1:{server.stdout.readline().strip()}"
                source = DELIVER_SUBJECT if mode == "push" else STREAM
                arguments = ["--server", address, "--source", source, "--count", str(messages)]
                machine.settle(sides.directory)
                before = cpu_seconds([server.pid])
                found = run_client("consumer", mode, *arguments, "--size", str(size), *more)
                used = cpu_seconds([server.pid]) - before
                return {**found, "server_us": 1e6 * used / messages}
            finally:
                server.terminate()

    return run


def confirmed() -> Case[Sides]:
    """Acknowledgements of a pull consumer, one after the other, each confirmed."""

    def run(
        side_of: Callable[[Sides], Side], client: str, sync: str | None
    ) -> Callable[[Sides, float], Measurement]:
        def measure(sides: Sides, scale: float) -> Measurement:
            side, count = side_of(sides), int(CONFIRMED_COUNT * scale)
            create_stream(side)
            try:
                arguments = ["--nats", side.nats, "--stream", STREAM]
                published = ["--size", "100", "--count", str(2 * count)]
                run_client("publisher", "acked", *arguments, *published)
                create_consumer(side, "pull", ack_policy="explicit")
                if sync is not None:
                    _sync_consumer_state(sides.port, sync)
                machine.settle(sides.directory)
                before = cpu_seconds(side.pids)
                found = run_client("confirming", client, *arguments, "--count", str(count))
                return {**found, "server_us": 1e6 * (cpu_seconds(side.pids) - before) / count}
            finally:
                delete_stream(side)

        return measure

    variants = list[Variant[Sides]]()
    for client in ("raw", "nats-py"):
        peer = f"JetStream, {'raw socket' if client == 'raw' else client}"
        ours = peer.replace("JetStream", "streamlog's port")
        targets = (Target(P50, 1.2, beside=peer),) if client == "nats-py" else ()
        variants += (
            Variant(peer, run(_jetstream, client, None)),
            Variant(f"{ours}, confirm_acks=applied", run(_port_applied, client, None), targets),
            Variant(f"{ours}, sync=os", run(_port, client, "os")),
            Variant(f"{ours}, sync=commit", run(_port, client, "commit")),
        )
    title = "Acknowledge to a consumer, one after the other, each confirmed"
    return Case("port-confirmed", title, (P50, P99, CPU), tuple(variants))


def _sync_consumer_state(port: Port, sync: str) -> None:
    command = [program("streamlog"), "stream", "edit", "__consumer_state", "--sync", sync]
    done = subprocess.run(
        [*command, "--bootstrap-server", port.kafka], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchmarkError(done.stderr or done.stdout)


CASES: Final = (
    acked(100, {"os": 8.0, "commit": 3.5}),
    acked(1024, {"os": 4.0, "commit": 1.7}),
    many(1, 1, 40_000, 1.0),
    many(16, 1, 200_000, None),
    many(256, 1, 300_000, 2.0),
    many(64, 32, 800_000, None),
    latency(1_000),
    latency(10_000),
    headed(),
    core(),
    consumed(100),
    consumed(1024),
    confirmed(),
)
