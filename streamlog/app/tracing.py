"""Traces as OpenTelemetry has them: spans of a batch's way, sent by OTLP over HTTP.

OpenTelemetry is imported only where tracing is on; ``pip install 'streamlog[otel]'`` brings it.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from streamlog import __version__
from streamlog.config import TracingSection
from streamlog.errors import ConfigError
from streamlog.model import NodeId
from streamlog.partition.partition import Partition
from streamlog.partition.tracing import BatchTrace, TracedPartition, Traces

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Tracer

FLUSH_MS: Final = 2_000
"""How long a node that stops waits for what it has not sent yet."""
QUEUE_MAX: Final = 2_048
"""Spans that wait to be sent; more are dropped."""


class Tracing:
    """``traces`` for the partitions; ``close`` when the node has stopped. Raises ConfigError."""

    def __init__(
        self, settings: TracingSection, node_id: NodeId, processor: "SpanProcessor | None" = None
    ) -> None:
        """``processor``: who gets the spans; by default they are sent to the settings' endpoint."""
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
        except ImportError:
            raise _not_installed() from None
        resource = Resource.create(
            {
                "service.name": "streamlog",
                "service.version": __version__,
                "service.instance.id": str(node_id),
            }
        )
        # Who is sampled has been decided, and no signal of the system is to be ours.
        self._provider: TracerProvider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor or _sender(settings.endpoint))
        tracer = self._provider.get_tracer("streamlog", __version__)
        self.traces = Traces(
            lambda trace: export(tracer, trace),
            sample_ratio=settings.sample_ratio,
            batches_per_s_max=settings.batches_per_s_max,
        )

    def close(self) -> None:
        """Blocks for ``FLUSH_MS`` at most, and what the exporter takes to give up."""
        self._provider.force_flush(FLUSH_MS)
        self._provider.shutdown()


def tracing_of(settings: TracingSection, node_id: NodeId) -> Tracing | None:
    """None where nothing is sampled."""
    return Tracing(settings, node_id) if settings.sample_ratio else None


def traced(tracing: Tracing | None) -> Callable[..., Partition]:
    """How partitions are made, so that their batches are traced if any are."""
    return Partition if tracing is None else partial(TracedPartition, traces=tracing.traces)


def export(tracer: "Tracer", trace: BatchTrace) -> None:
    """The spans of one batch; all times are known by now."""
    from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

    root = tracer.start_span(
        "streamlog.batch",
        kind=SpanKind.CONSUMER,
        start_time=trace.received_ns,
        attributes={
            "messaging.system": "streamlog",
            "messaging.destination.name": trace.tp.stream,
            "messaging.destination.partition.id": str(trace.tp.partition),
            "messaging.batch.message_count": trace.records,
            "streamlog.leader_epoch": trace.leader_epoch,
            "streamlog.base_offset": trace.base_offset,
            "streamlog.size_bytes": trace.size_bytes,
        },
    )
    if trace.error:
        root.set_status(Status(StatusCode.ERROR, trace.error))
    parent = set_span_in_context(root)

    def child(name: str, began_ns: int, ended_ns: int, **attributes: str | int) -> None:
        if began_ns and ended_ns:
            span = tracer.start_span(
                f"streamlog.{name}", parent, start_time=began_ns, attributes=attributes
            )
            span.end(max(began_ns, ended_ns))

    child("receive", trace.received_ns, trace.append_began_ns)
    child("append", trace.append_began_ns, trace.appended_ns or trace.acked_ns)
    child("sync", trace.appended_ns, trace.synced_ns)
    for node_id, at_ns in sorted(trace.replicated_ns.items()):
        child("replicate", trace.appended_ns, at_ns, node=node_id)
    child("ack", trace.committed_ns, trace.acked_ns)
    root.end(trace.acked_ns)


def _sender(endpoint: str) -> "SpanProcessor":
    """Sends from a thread of its own."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise _not_installed() from None
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=FLUSH_MS / 1000)
    return BatchSpanProcessor(exporter, max_queue_size=QUEUE_MAX)


def _not_installed() -> ConfigError:
    problem = "is above 0, and OpenTelemetry is not installed"
    return ConfigError("tracing.sample_ratio", problem, "pip install 'streamlog[otel]', or set 0")
