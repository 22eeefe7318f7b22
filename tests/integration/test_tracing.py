"""The way of a batch as spans: in memory, and at a collector that takes OTLP over HTTP."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="pip install 'streamlog[otel]'")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from streamlog.app.tracing import Tracing
from streamlog.config import TracingSection
from streamlog.errors import StreamNotFound
from streamlog.model import NodeId
from streamlog.nats_tools.publisher import Publisher
from streamlog.partition.partition import Partition
from streamlog.partition.tracing import TracedPartition
from tests.local_node import LocalNode, until
from tools.nodes.server_process import wait_until


def by_name(spans: tuple[ReadableSpan, ...]) -> dict[str, ReadableSpan]:
    return {span.name.removeprefix("streamlog."): span for span in spans}


async def test_a_batch_in_memory(tmp_path: Path, nats_server: Any) -> None:
    exporter = InMemorySpanExporter()
    settings = TracingSection(sample_ratio=1.0)
    tracing = Tracing(settings, NodeId(1), SimpleSpanProcessor(exporter))
    async with LocalNode(tmp_path / "data", nats_server.url, traces=tracing.traces) as node:
        partition = await node.create("s")
        assert type(partition) is TracedPartition
        async with Publisher(nats_server.url) as publisher:
            await publisher.publish("s", b"hello")
        await until(lambda: len(exporter.get_finished_spans()) >= 5)
    tracing.close()
    spans = by_name(exporter.get_finished_spans())
    assert spans.keys() == {"batch", "receive", "append", "sync", "ack"}
    root = spans.pop("batch")
    assert root.attributes is not None and root.parent is None
    assert root.attributes["messaging.destination.name"] == "s"
    assert root.attributes["messaging.batch.message_count"] == 1
    assert root.attributes["streamlog.base_offset"] == 0
    assert root.resource.attributes["service.instance.id"] == "1"
    for span in spans.values():
        assert span.parent is not None and span.parent.span_id == root.context.span_id
        times = [root.start_time, span.start_time, span.end_time, root.end_time]
        assert times == sorted(at or 0 for at in times)
    ends = [spans[name].end_time for name in ("receive", "append", "sync", "ack")]
    assert ends == sorted(at or 0 for at in ends)


async def test_a_refused_batch_says_why(tmp_path: Path, nats_server: Any) -> None:
    exporter = InMemorySpanExporter()
    settings = TracingSection(sample_ratio=1.0)
    tracing = Tracing(settings, NodeId(1), SimpleSpanProcessor(exporter))
    async with LocalNode(tmp_path / "data", nats_server.url, traces=tracing.traces) as node:
        partition = await node.create("s")
        partition.state._has_room = lambda: False
        async with Publisher(nats_server.url) as publisher:
            with pytest.raises(Exception, match=r"room|full|storage"):
                await publisher.publish("s", b"hello")
        await until(lambda: bool(exporter.get_finished_spans()))
    tracing.close()
    root = by_name(exporter.get_finished_spans())["batch"]
    assert root.status.description == "StorageFull"
    assert not root.status.is_ok
    assert tracing.traces.open == 0


async def test_off_is_off(tmp_path: Path, nats_server: Any) -> None:
    async with LocalNode(tmp_path / "data", nats_server.url) as node:
        assert type(await node.create("s")) is Partition


class Collector(ThreadingHTTPServer):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taker)
        self.names: set[str] = set()
        self.nodes: set[str] = set()
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            attributes = {it.key: it.value.string_value for it in resource.resource.attributes}
            self.nodes.add(attributes["service.instance.id"])
            self.names |= {it.name for scope in resource.scope_spans for it in scope.spans}

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self.thread.join()


class _Taker(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        import gzip

        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        assert isinstance(self.server, Collector)
        self.server.take(body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    started = Collector()
    yield started
    started.stop()


def test_three_nodes_send_what_they_have_traced(
    new_dev: Callable[..., Any], collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    monkeypatch.setenv("STREAMLOG_TRACING__SAMPLE_RATIO", "1")
    monkeypatch.setenv("STREAMLOG_TRACING__ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    trio = new_dev("--nodes", "3")
    trio.start()

    async def publish() -> None:
        from streamlog.client.cluster import Cluster
        from streamlog.metadata.commands import CreateStream, encode_command
        from streamlog.metadata.stream.stream_config import StreamConfig

        config = StreamConfig.of(name="s", replicas=3)
        async with Cluster.at(trio.kafka) as cluster:
            await cluster.command(encode_command(CreateStream(config=config)))
        async with Publisher(trio.nats) as publisher, asyncio.timeout(30):
            acked = 0
            while acked < 20:
                with contextlib.suppress(StreamNotFound):  # its leader is about to listen
                    await publisher.publish("s", b"x")
                    acked += 1

    asyncio.run(publish())
    wanted = {"batch", "receive", "append", "sync", "replicate", "ack"}
    wait_until(
        lambda: {f"streamlog.{name}" for name in wanted} <= collector.names, "spans are missing"
    )
    assert collector.nodes <= {"1", "2", "3"}
    assert trio.stop(60) == 0
