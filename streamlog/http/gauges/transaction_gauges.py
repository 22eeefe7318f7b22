"""Gauges of transactions, exported by each transactional id's coordinator alone."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streamlog.condition import Condition
from streamlog.transactions.service import TransactionStatistics
from streamlog.transactions.transaction import TransactionState

READERS_HELD_UP: Final = Condition(
    "SL-0907",
    "an open transaction holds up readers",
    "`streamlog transaction ls --state Ongoing` names its producer: see its log, or end it by "
    "`streamlog transaction abort`",
    meaning="A transaction has been open for minutes. Readers of committed records get nothing that "
    "was written to its partitions since it began.",
)

ENDED = ("commit", "abort", "timeout", "fence", "operator")


class TransactionGauges(Collector):
    """The transactional ids that this node coordinates, as they were when the scrape began."""

    def __init__(self, statistics: TransactionStatistics, unsent_markers: int) -> None:
        self._statistics = statistics
        self._unsent_markers = unsent_markers

    def collect(self) -> Iterator[Metric]:
        """As the registry wants it."""
        found = self._statistics
        states = GaugeMetricFamily(
            "streamlog_transactions",
            "Transactional ids coordinated by this node",
            labels=["state"],
        )
        for state in TransactionState:
            if state is not TransactionState.DEAD:
                states.add_metric([state.shown], found.states[state.shown])
        yield states
        ended = CounterMetricFamily(
            "streamlog_transactions_ended", "Transactions ended by this node", labels=["by"]
        )
        for by in ENDED:
            ended.add_metric([by], found.ended[by])
        yield ended
        yield GaugeMetricFamily(
            "streamlog_transaction_oldest_seconds",
            "Age of the oldest open transaction coordinated by this node; 0: none is open",
            value=found.oldest_s,
        )
        yield GaugeMetricFamily(
            "streamlog_transaction_markers_unsent",
            "Markers that partitions have yet to take",
            value=self._unsent_markers,
        )
        yield GaugeMetricFamily(
            "streamlog_transaction_partitions_loading",
            "Partitions of __transaction_state that this node is loading",
            value=found.loading,
        )
