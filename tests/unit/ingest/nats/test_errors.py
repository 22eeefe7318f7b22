"""What NATS says, and what is to be done about it."""

import ssl

import nats.errors
import pytest

from streamlog.ingest.nats.connection_state import ConnectionState
from streamlog.ingest.nats.error_counts import FORBIDDEN_MAX, NatsErrorCounts
from streamlog.ingest.nats.errors import (
    EndedEarly,
    InTheClear,
    NatsErrorKind,
    SlowConsumerCut,
    Unusable,
    understood,
)
from streamlog.metrics import NodeMetrics


def said(text: str) -> nats.errors.Error:
    return nats.errors.Error(f"nats: '{text}'")


@pytest.mark.parametrize(
    ("error", "kind", "remedy"),
    [
        (said("Authorization Violation"), NatsErrorKind.LOGIN, "knows this login"),
        (said("User Authentication Expired"), NatsErrorKind.LOGIN, "knows this login"),
        (said("Secure Connection - TLS Required"), NatsErrorKind.TLS, "nats.tls_"),
        (said("maximum connections exceeded"), NatsErrorKind.LIMIT, "raise that limit"),
        (said('Permissions Violation for Publish to "a"'), NatsErrorKind.PUBLISH, "docs/nats.md"),
        (
            said('Permissions Violation for Subscription to "a"'),
            NatsErrorKind.SUBSCRIBE,
            "docs/nats.md",
        ),
        (said("Slow Consumer"), NatsErrorKind.SLOW_CONSUMER, "max_pending"),
        (said("Unknown Protocol Operation"), NatsErrorKind.OTHER, ""),
        (SlowConsumerCut(), NatsErrorKind.SLOW_CONSUMER, "max_pending"),
        (InTheClear(), NatsErrorKind.TLS, "turn TLS on there"),
        (EndedEarly(True), NatsErrorKind.TLS, "nats.tls_cert"),
        (EndedEarly(False), NatsErrorKind.OTHER, "whether it is one"),
        (Unusable("nats.tls_ca: /x cannot be read; name"), NatsErrorKind.TLS, ""),
        (Unusable("nats.credentials: /x cannot be read; name"), NatsErrorKind.LOGIN, ""),
        (ConnectionRefusedError(111, "refused"), NatsErrorKind.UNREACHABLE, "nats.servers"),
        (TimeoutError(), NatsErrorKind.UNREACHABLE, "nats.tls_first"),
        (
            ssl.SSLError(1, "[SSL] tlsv13 alert certificate required"),
            NatsErrorKind.TLS,
            "nats.tls_cert",
        ),
        (ssl.SSLError(1, "[SSL] wrong version number"), NatsErrorKind.TLS, "nats.tls_first"),
        (ssl.SSLError(1, "something new"), NatsErrorKind.TLS, "nats.tls_*"),
        (RuntimeError(), NatsErrorKind.OTHER, ""),
    ],
)
def test_kinds_and_remedies(error: Exception, kind: NatsErrorKind, remedy: str) -> None:
    complaint = understood(error, "user 'a'")
    assert complaint.kind is kind
    assert remedy in complaint.remedy
    assert complaint.text
    assert "\n" not in str(complaint)
    refused = kind is NatsErrorKind.LOGIN and not isinstance(error, Unusable)
    assert ("user 'a'" in complaint.text) is refused


def counted(metrics: NodeMetrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(f"streamlog_nats_{name}_total", labels) or 0


def test_what_is_not_permitted_is_told_once_and_counted_always(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = NodeMetrics()
    outage = ConnectionState(metrics)
    for number in (1, 2, 1, 2, 1):
        outage.failed(said(f'Permissions Violation for Publish to "{number}"'))
    assert [record.getMessage() for record in caplog.records] == [
        "NATS does not permit what streamlog needs"
    ] * 2
    assert counted(metrics, "permission_violations", operation="publish") == 5
    assert counted(metrics, "permission_violations", operation="subscribe") == 0


def test_what_is_told_of_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    complaints = NatsErrorCounts(NodeMetrics(), "ingest")
    for number in range(2 * FORBIDDEN_MAX):
        complaint = understood(said(f'Permissions Violation for Publish to "{number}"'))
        assert complaints.hear(complaint)
    assert len(caplog.records) == FORBIDDEN_MAX


def test_cuts_are_counted_by_connection() -> None:
    metrics = NodeMetrics()
    ConnectionState(metrics).failed(SlowConsumerCut())
    NatsErrorCounts(metrics, "admin").hear(understood(SlowConsumerCut()))
    for connection in ("ingest", "admin"):
        assert counted(metrics, "slow_consumer_disconnects", connection=connection) == 1


def test_an_outage_has_a_reason_until_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    metrics = NodeMetrics()
    outage = ConnectionState(metrics, login="a token")
    for _ in range(3):
        outage.failed(said("Authorization Violation"))
    assert str(outage.complaint).startswith("'Authorization Violation' (a token): ")
    assert len(caplog.records) == 1
    assert counted(metrics, "connection_failures", reason="login") == 3
    outage.connected(None, subscriptions=0)
    assert outage.complaint is None
