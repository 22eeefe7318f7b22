"""Metrics, liveness, readiness, and what goes with each answer, asked over a real socket."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from streamlog.errors import ConfigError
from streamlog.http.endpoints import HttpEndpoints, Readiness
from streamlog.http.gauges.cluster_gauges import ClusterGauges, ClusterStatistics
from streamlog.http.gauges.partition_gauges import (
    PartitionGauges,
    PartitionScrape,
    PartitionTotals,
)
from streamlog.metadata.nodes.node_condition import NATS_GONE
from streamlog.metrics import NodeMetrics
from streamlog.model import TopicPartition
from streamlog.partition.state import PartitionStatistics
from tests.certificate_authority import CertificateAuthority, Issued
from tests.partition_statistics import partition_statistics

Runs = Callable[[Coroutine[Any, Any, None]], None]


def numbered(tp: TopicPartition, **values: Any) -> PartitionStatistics:
    """The gauges of a partition are 1 to 9, in the order in which they are shown."""
    numbers: dict[str, Any] = {
        "log_start_offset": 1,
        "high_watermark": 2,
        "log_end_offset": 3,
        "size_bytes": 4,
        "segment_count": 5,
        "leader_epoch": 6,
        "isr_size": 7,
        "follower_lag": 8,
        "in_flight_bytes": 9,
        "replica_count": 7,
        "min_isr": 7,
    }
    return partition_statistics(tp, **{**numbers, **values})


class World:
    """What the site is told about the node."""

    def __init__(self) -> None:
        self.metrics = NodeMetrics()
        self.partitions = [numbered(TopicPartition("s", 0)), numbered(TopicPartition("s", 1))]
        self.problem: str | None = None
        self.cluster = ClusterStatistics("follower", 7, None, 42, True, 3, 1, 2)
        self.site = self.make(0)

    def make(self, port: int, **more: Any) -> HttpEndpoints:
        return HttpEndpoints(
            "127.0.0.1",
            port,
            registry=self.metrics.registry,
            gauges=self.gauges,
            readiness=Readiness({"storage": lambda: None, "nats": lambda: self.problem}),
            loop_lag_s=lambda: 0.25,
            pages=PartitionScrape(statistics=self.statistics, partitions_max=3).routes,
            **more,
        )

    async def gauges(self) -> list[Collector]:
        totals = PartitionTotals()
        for it in self.partitions:
            totals.add(it)
        return [PartitionGauges(totals, failed=9), ClusterGauges(self.cluster)]

    async def statistics(self, streams: Iterable[str] | None) -> list[PartitionStatistics]:
        return [it for it in self.partitions if streams is None or it.tp.stream in streams]

    async def get(self, path: str) -> tuple[int, str, str]:
        url = f"http://127.0.0.1:{self.site.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status, answer.content_type, await answer.text()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.site.start()
    yield world
    await world.site.stop()


def samples_of(text: str) -> dict[tuple[str, str | None, str | None], float]:
    return {
        (sample.name, sample.labels.get("stream"), sample.labels.get("partition")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_metrics_are_counters_and_gauges_of_all_partitions(world: World) -> None:
    world.metrics.append_records.inc(5)
    status, content_type, text = await world.get("/metrics")
    assert (status, content_type) == (200, "text/plain")
    samples = samples_of(text)
    assert samples["streamlog_append_records_total", None, None] == 5
    assert samples["streamlog_partitions", None, None] == 2
    assert samples["streamlog_log_size_bytes", None, None] == 8
    assert samples["streamlog_follower_lag_max", None, None] == 8
    assert not [name for name, _, _ in samples if name.startswith("streamlog_partition_")]
    assert samples["streamlog_failed_partitions", None, None] == 9
    assert samples["streamlog_partitions_auto_paused", None, None] == 0


async def test_each_partition_is_told_of_on_demand(world: World) -> None:
    samples = samples_of((await world.get("/metrics/partitions"))[2])
    names = ("log_start_offset", "high_watermark", "log_end_offset", "size_bytes", "segments")
    more = ("leader_epoch", "isr_size", "follower_lag", "in_flight_bytes")
    for value, name in enumerate((*names, *more), start=1):
        for partition in ("0", "1"):
            assert samples[f"streamlog_partition_{name}", "s", partition] == value


async def test_partitions_are_told_of_by_stream_and_up_to_a_limit(world: World) -> None:
    world.partitions += [numbered(TopicPartition("t", number)) for number in range(4)]
    samples = samples_of((await world.get("/metrics/partitions?stream=s&stream=no"))[2])
    assert {stream for _, stream, _ in samples} == {None, "s"}
    assert samples["streamlog_partitions_series_omitted", None, None] == 0
    samples = samples_of((await world.get("/metrics/partitions?stream=t"))[2])
    assert samples["streamlog_partitions_series_omitted", None, None] == 1
    assert len([1 for name, _, _ in samples if name == "streamlog_partition_segments"]) == 3
    many = "&".join(f"stream={number}" for number in range(101))
    assert (await world.get(f"/metrics/partitions?{many}"))[0] == 400


async def test_led_partitions_that_want_replicas_are_counted(world: World) -> None:
    tp = TopicPartition("s", 2)
    world.partitions += [
        numbered(tp, replica_count=8),
        numbered(tp, replica_count=8, min_isr=8),
        numbered(tp, replica_count=8, min_isr=8, is_leader=False),
    ]
    text = (await world.get("/metrics"))[2]
    assert "\nstreamlog_partitions_led 4.0\n" in text
    assert "\nstreamlog_partitions_under_replicated 2.0\n" in text
    assert "\nstreamlog_partitions_under_min_isr 1.0\n" in text


async def test_partitions_are_read_at_each_scrape(world: World) -> None:
    assert 'partition="1"' in (await world.get("/metrics/partitions"))[2]
    world.partitions.pop()
    assert 'partition="1"' not in (await world.get("/metrics/partitions"))[2]


async def test_alive_is_alive_even_if_not_ready(world: World) -> None:
    world.problem = "not connected"
    status, content_type, text = await world.get("/healthz")
    assert (status, content_type) == (200, "application/json")
    answer = json.loads(text)
    assert abs(answer.pop("time_ms") / 1000 - time.time()) < 60
    assert answer == {"alive": True, "event_loop_lag_seconds": 0.25}


async def test_readiness_says_why_not(world: World) -> None:
    assert (await world.get("/readyz"))[0::2] == (
        200,
        '{"ready": true, "reasons": {}, "codes": {}}',
    )
    world.problem = "not connected"
    status, _, text = await world.get("/readyz")
    assert status == 503
    assert json.loads(text) == {
        "ready": False,
        "reasons": {"nats": "not connected"},
        "codes": {"nats": NATS_GONE.code},
    }


async def test_what_goes_with_each_answer(world: World) -> None:
    async with aiohttp.ClientSession() as session:
        for path in ("/healthz", "/metrics", "/nowhere"):
            async with session.get(f"http://127.0.0.1:{world.site.port}{path}") as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy and "unsafe" not in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["X-Frame-Options"] == "DENY"
                assert answer.headers["Server"] == "streamlog"


async def test_other_paths_and_methods_are_refused(world: World) -> None:
    assert (await world.get("/etc/passwd"))[0] == 404
    url = f"http://127.0.0.1:{world.site.port}/metrics"
    async with aiohttp.ClientSession() as session, session.post(url) as answer:
        assert answer.status == 405


async def test_a_port_in_use_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"^http\.port: {port} is in use on 127\.0\.0\.1; "):
            await World().make(port).start()


async def test_a_stopped_site_frees_its_port(world: World) -> None:
    await world.site.stop()
    again = world.make(world.site.port)
    await again.start()
    await again.stop()


async def test_the_cluster_s_gauges(world: World) -> None:
    _, _, text = await world.get("/metrics")
    values = {
        (sample.name, sample.labels.get("role")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert values["streamlog_quorum_epoch", None] == 7
    assert values["streamlog_quorum_controller", None] == -1
    assert values["streamlog_metadata_offset", None] == 42
    assert values["streamlog_lease_held", None] == 1
    assert values["streamlog_nodes_fenced", None] == 1
    assert values["streamlog_offline_partitions", None] == 2
    assert values["streamlog_quorum_role", "follower"] == 1
    assert values["streamlog_quorum_role", "leader"] == 0
    assert "streamlog_activity_offset" not in text
    world.cluster = world.cluster._replace(activity_offset=40)
    world.partitions[0] = replace(world.partitions[0], is_auto_paused=True)
    _, _, text = await world.get("/metrics")
    assert "\nstreamlog_activity_offset 40.0\n" in text
    assert "\nstreamlog_partitions_auto_paused 1.0\n" in text


# TLS, and who keeps others waiting


def https(authority: CertificateAuthority, own: Issued | None = None) -> aiohttp.TCPConnector:
    return aiohttp.TCPConnector(ssl=authority.client(own))


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_the_pages_over_tls_show_the_newest_certificate(tmp_path: Path, run: Runs) -> None:
    authority = CertificateAuthority(tmp_path)
    issued = authority.issue("page")
    context = authority.server(issued)

    async def play() -> None:
        nonlocal context
        site = World().make(0, tls=lambda: context)
        await site.start()
        try:
            seen = {await shown_by(site, authority)}
            context = authority.server(authority.issue("page"))
            assert await shown_by(site, authority) not in seen
        finally:
            await site.stop()

    run(play())


async def shown_by(site: HttpEndpoints, authority: CertificateAuthority) -> str:
    """The certificate's number; the page is there, too."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", site.port, ssl=authority.client(), server_hostname="localhost"
    )
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(10):
        assert b"HTTP/1.1 200 OK" in await reader.read()
    shown: str = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
    writer.close()
    return shown


async def test_pages_may_want_a_certificate(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    context = authority.server(authority.issue("page"), "required")
    # What is asked is that of the newest context, too.
    site = World().make(0, tls=lambda: context)
    await site.start()
    address = f"https://127.0.0.1:{site.port}/metrics"
    prom = https(authority, authority.issue("prom"))
    async with aiohttp.ClientSession(connector=prom) as known, known.get(address) as answer:
        assert answer.status == 200
    async with aiohttp.ClientSession(connector=https(authority)) as unknown:
        with pytest.raises((aiohttp.ClientError, OSError)):
            await unknown.get(address)
    await site.stop()
