from prometheus_client import CollectorRegistry

from streamlog.ledger.core.consenter import SkipReason
from streamlog.ledger.core.cutter import CutReason
from streamlog.ledger.metrics import LedgerMetrics
from tests.unit.ledger.ledger_chain import CHANNEL, HandMadeChain, config_of


def sampled(metrics: LedgerMetrics, name: str, **labels: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(metrics)
    return registry.get_sample_value(f"streamlog_ledger_{name}", {"channel": CHANNEL, **labels})


def new_metrics() -> LedgerMetrics:
    return LedgerMetrics(lambda: [])


def test_ordinary_records_are_counted_and_configurations_only_as_blocks() -> None:
    metrics, chain = new_metrics(), HandMadeChain(config_of("a"))
    chain.add(b"one", b"two")
    metrics.appended(chain.blocks[0], None)
    metrics.appended(chain.blocks[1], CutReason.TIME)
    assert sampled(metrics, "blocks_total") == 2
    assert sampled(metrics, "records_total") == 2
    assert sampled(metrics, "record_bytes_total") == len(chain.blocks[1].data)
    assert sampled(metrics, "cuts_total", reason="time") == 1
    assert sampled(metrics, "cuts_total", reason="records") is None


def test_a_broadcast_is_timed_until_a_block_has_it() -> None:
    metrics, chain = new_metrics(), HandMadeChain(config_of("a"))
    block = chain.add(b"one", b"two")
    metrics.broadcast(CHANNEL, "ok", 0.25, block.metadata.first_offset)
    metrics.broadcast(CHANNEL, "ok", 0.25, block.metadata.end_offset)
    assert sampled(metrics, "commit_seconds_sum") == 0.5
    assert sampled(metrics, "broadcast_to_block_seconds_count") == 0
    metrics.appended(block, CutReason.RECORDS)
    assert sampled(metrics, "broadcast_to_block_seconds_count") == 1
    assert sampled(metrics, "broadcast_to_block_seconds_bucket", le="0.1") == 0
    metrics.appended(chain.add(b"three"), CutReason.RECORDS)
    assert sampled(metrics, "broadcast_to_block_seconds_count") == 2


def test_a_block_may_be_there_before_the_acknowledgement() -> None:
    metrics, chain = new_metrics(), HandMadeChain(config_of("a"))
    block = chain.add(b"one")
    metrics.appended(block, CutReason.RECORDS)
    metrics.broadcast(CHANNEL, "ok", 0.02, block.metadata.first_offset)
    assert sampled(metrics, "broadcast_to_block_seconds_sum") == 0.02


def test_what_is_refused_is_counted_by_its_kind_and_not_timed() -> None:
    metrics = new_metrics()
    metrics.broadcast(CHANNEL, "RecordTooLarge", 0.001, None)
    metrics.skipped(CHANNEL, SkipReason.STALE_TIME_TO_CUT)
    metrics.refused(CHANNEL, "corrupt")
    assert sampled(metrics, "broadcasts_total", outcome="RecordTooLarge") == 1
    assert sampled(metrics, "commit_seconds_count") == 0
    assert sampled(metrics, "skipped_records_total", reason="stale-time-to-cut") == 1
    assert sampled(metrics, "rejected_total", reason="corrupt") == 1
