"""Every metric that a node may show, as it is shown: for tests of what is said about them."""

from collections import Counter
from pathlib import Path

from prometheus_client import ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from streamlog.groups.service import GroupStatistics
from streamlog.http.gauges.cluster_gauges import ClusterGauges, ClusterStatistics, MachineGauges
from streamlog.http.gauges.consumer_gauges import ConsumerGauges
from streamlog.http.gauges.group_gauges import GroupGauges, LagGauges
from streamlog.http.gauges.mirror_gauges import MirrorGauges
from streamlog.http.gauges.partition_gauges import EachPartition, PartitionGauges, PartitionTotals
from streamlog.http.gauges.share_gauges import ShareGauges
from streamlog.http.gauges.transaction_gauges import TransactionGauges
from streamlog.jetstream.consumers.consumer_statistics import ConsumerStatistics, Holder
from streamlog.metrics import NodeMetrics
from streamlog.shares.share_service import ShareStatistics
from streamlog.transactions.service import TransactionStatistics


def families() -> dict[str, Metric]:
    """By the name that a scrape gives them, a counter's with ``_total``."""
    statistics = ClusterStatistics("leader", 1, 1, 1, True, 1, 0, 0, 1, 0.0)
    metrics = NodeMetrics()
    ProcessCollector(registry=metrics.registry)
    collectors: list[Collector] = [
        ClusterGauges(statistics),
        GroupGauges(GroupStatistics(Counter(), Counter(), 0, 0, 0, 0, 0)),
        ShareGauges(ShareStatistics(0, 0, 0, 0, 0)),
        ConsumerGauges(ConsumerStatistics(holders=[Holder("s", "c", 1)])),
        MirrorGauges([]),
        LagGauges([], omitted=0, ends={}),
        TransactionGauges(TransactionStatistics(Counter(), Counter(), 0.0, 0), 0),
        MachineGauges(Path("/")),
        PartitionGauges(PartitionTotals(), failed=0),
        EachPartition([]),
    ]
    found = [*metrics.registry.collect(), *(it for one in collectors for it in one.collect())]
    return {f"{it.name}_total" if it.type == "counter" else it.name: it for it in found}
