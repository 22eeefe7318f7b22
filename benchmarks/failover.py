"""How long a cluster of three is away when a member is: gaps between acks, beside JetStream's R3.

A publisher sends a message each 2 ms through a server that is not touched. The gap lasts from the
blow to the first ack of a message that was published after it.
"""

import os
import signal
import time
from collections.abc import Callable
from typing import Final

from benchmarks.case import Case, Measurement, Metric, Variant
from benchmarks.connection import BenchmarkError
from benchmarks.gap import Prober
from benchmarks.network import HOST as OUTSIDE
from benchmarks.network import unavailable
from benchmarks.streamlog_trio import StreamlogTrio
from benchmarks.trio import (
    MEMBERS,
    Trio,
    ask_again_and_again,
    create_stream,
    delete_stream,
    leader,
    wait_whole,
)
from benchmarks.trios import Apart, Trios
from tools.nodes.node_process import PartitionView

STREAM: Final = "gap"
KILLS: Final = 50
PAUSES: Final = 10
CUTS: Final = 10
MANY: Final = "many-"
MANY_STREAMS: Final = 100
MANY_PARTITIONS: Final = 100
LED_TIMEOUT_S: Final = 120.0
WHOLE_TIMEOUT_S: Final = 600.0

MEDIAN = Metric("gap_ms", "ms, median", lower_is_better=True)
P99 = Metric("gap_ms", "ms, p99", lower_is_better=True, quantile=0.99)
WORST = Metric("gap_ms", "ms, worst", lower_is_better=True, quantile=1.0)
DECIDES = Metric("decides_ms", "ms until a stream is created", lower_is_better=True)
LEADS = Metric("leads_ms", "ms until every partition is led", lower_is_better=True)


def killed(trio: Trio) -> Measurement:
    """kill -9 of the leader; afterwards it is started again and catches up."""
    victim = leader(trio, STREAM)
    prober = Prober(trio.nats(without=victim), STREAM)
    try:
        gap_s = prober.gap_s(lambda: os.kill(trio.pid(victim), signal.SIGKILL))
    finally:
        prober.close()
        trio.start(victim)
        wait_whole(trio, STREAM)
    return {"gap_ms": 1000 * gap_s}


def paused(trio: Trio) -> Measurement:
    """SIGSTOP of the leader: its connections stay open, but nothing comes from it any more."""
    victim = leader(trio, STREAM)
    prober = Prober(trio.nats(without=victim), STREAM)
    try:
        gap_s = prober.gap_s(lambda: os.kill(trio.pid(victim), signal.SIGSTOP))
    finally:
        prober.close()
        os.kill(trio.pid(victim), signal.SIGCONT)
        wait_whole(trio, STREAM)
    return {"gap_ms": 1000 * gap_s}


def cut_off(apart: Apart) -> Measurement:
    """The leader's cable is cut: no packet to or from it, and nobody is told."""
    trio, network = apart
    victim = leader(trio, STREAM)
    others = [OUTSIDE, *(member for member in MEMBERS if member != victim)]
    prober = Prober(trio.nats(without=victim), STREAM)
    try:
        gap_s = prober.gap_s(lambda: network.split([victim], others))
    finally:
        prober.close()
        network.heal()
        wait_whole(trio, STREAM)
    return {"gap_ms": 1000 * gap_s}


def controller_killed(trio: Trio) -> Measurement:
    """kill -9 of the controller (JetStream's meta leader), until another one creates a stream."""
    victim, name = trio.controller(), f"after-{time.monotonic_ns()}"
    config = {"name": name, "subjects": [name], "storage": "file", "num_replicas": 1}
    os.kill(trio.pid(victim), signal.SIGKILL)
    struck = time.perf_counter()
    try:
        ask_again_and_again(trio, f"STREAM.CREATE.{name}", config, without=victim)
        result = {"decides_ms": 1000 * (time.perf_counter() - struck)}
        if isinstance(trio, StreamlogTrio):
            _wait_partitions(
                trio, lambda led: led.leader not in (-1, victim), LED_TIMEOUT_S, without=victim
            )
            result["leads_ms"] = 1000 * (time.perf_counter() - struck)
    finally:
        trio.start(victim)
    delete_stream(trio, name)
    if isinstance(trio, StreamlogTrio):
        _wait_partitions(trio, lambda led: led.is_whole, WHOLE_TIMEOUT_S)
    return result


def _wait_partitions(
    trio: StreamlogTrio,
    wanted: Callable[[PartitionView], bool],
    timeout_s: float,
    *,
    without: int = 0,
) -> None:
    """Wait until all partitions of the many streams are as they should be."""
    deadline = time.monotonic() + timeout_s
    while missing := sum(not wanted(led) for led in trio.partitions(MANY, without=without)):
        if time.monotonic() > deadline:
            raise BenchmarkError(f"{missing} partitions are not well after {timeout_s:.0f} s")
        time.sleep(0.02)


def _jetstream(trios: Trios) -> Trio:
    return trios.jetstream


def _streamlog(trios: Trios) -> Trio:
    return trios.streamlog


def _variant(
    label: str, trio_of: Callable[[Trios], Trio], measure: Callable[[Trio], Measurement]
) -> Variant[Trios]:
    return Variant(label, lambda trios, _: measure(trio_of(trios)))


def gap_case(
    name: str, title: str, measure: Callable[[Trio], Measurement], rounds: int
) -> Case[Trios]:
    def prepare(trios: Trios, _: float) -> None:
        for trio in (trios.jetstream, trios.streamlog):
            create_stream(trio, STREAM)

    variants = (
        _variant("JetStream R3", _jetstream, measure),
        _variant("streamlog, 3 replicas", _streamlog, measure),
    )
    metrics = (MEDIAN, P99, WORST)
    return Case(name, title, metrics, variants, prepare, lambda trios: trios.stop(), rounds)


def cut_case() -> Case[Trios]:
    def prepare(trios: Trios, _: float) -> None:
        for apart in (trios.jetstream_apart, trios.streamlog_apart):
            create_stream(apart.trio, STREAM)

    variants = (
        Variant[Trios]("JetStream R3", lambda trios, _: cut_off(trios.jetstream_apart)),
        Variant[Trios]("streamlog, 3 replicas", lambda trios, _: cut_off(trios.streamlog_apart)),
    )
    return Case(
        "cut",
        "A silent cut of the leader's network, until the next ack",
        (MEDIAN, WORST),
        variants,
        prepare,
        lambda trios: trios.stop(),
        CUTS,
        missing=unavailable,
    )


def controller_case() -> Case[Trios]:
    """JetStream has one stream meanwhile: its best case."""

    def prepare(trios: Trios, scale: float) -> None:
        create_stream(trios.jetstream, STREAM)
        for i in range(max(1, int(MANY_STREAMS * scale))):
            metadata = {"streamlog.partitions": str(MANY_PARTITIONS)}
            create_stream(trios.streamlog, f"{MANY}{i}", metadata=metadata, wait=False)
        _wait_partitions(trios.streamlog, lambda led: led.is_whole, WHOLE_TIMEOUT_S)

    variants = (
        _variant("JetStream, one stream R3", _jetstream, controller_killed),
        _variant("streamlog, 10,000 partitions of 3 replicas", _streamlog, controller_killed),
    )
    title = "kill -9 of the controller"
    metrics = (DECIDES, LEADS)
    return Case("controller", title, metrics, variants, prepare, lambda trios: trios.stop())


CASES: Final = (
    gap_case("killed", "kill -9 of the leader, until the next ack", killed, KILLS),
    gap_case("paused", "SIGSTOP of the leader, until the next ack", paused, PAUSES),
    cut_case(),
    controller_case(),
)
