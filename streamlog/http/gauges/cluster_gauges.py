"""Gauges of the metadata quorum and the nodes, as this node knows them at scrape time; of its disk and
its version (``MachineGauges``), which are read where they become text.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from streamlog import __version__
from streamlog.metadata.nodes.healing_status import NOTHING_LOST, HealingStatus
from streamlog.metadata.nodes.node_condition import DISABLING

ROLES: Final = (
    "leader", "follower", "observer", "candidate", "prospective", "unattached", "resigned",
)  # fmt: skip
NO_CONTROLLER: Final = -1
HEALING_STATES: Final = ("moving", "waiting", "leaderless", "without_room")


class ClusterStatistics(NamedTuple):
    """One moment."""

    role: str
    quorum_epoch: int
    controller: int | None
    metadata_offset: int
    lease_held: bool
    nodes: int
    fenced: int
    leaderless: int
    activity_offset: int | None = None
    """Where this node leads ``__activity``."""
    clock_skew_s: float | None = None
    """How far this node's clock is ahead of that of most nodes; None before it is known."""
    unfit: tuple[str, ...] = ()
    """What this node cannot lead with, by the names of ``metadata.nodes.node_condition``."""
    healing: HealingStatus = NOTHING_LOST
    """Nothing but on the controller."""


class ClusterGauges(Collector):
    """One scrape's gauges. Built on the event loop, turned into text anywhere."""

    def __init__(self, statistics: ClusterStatistics) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        it = self._statistics
        controller = NO_CONTROLLER if it.controller is None else it.controller
        for name, text, value in (
            ("quorum_epoch", "Epoch of the metadata quorum", it.quorum_epoch),
            ("quorum_controller", "Node id of the controller; -1: unknown", controller),
            (
                "metadata_offset",
                "End of the metadata that this node has applied",
                it.metadata_offset,
            ),
            ("lease_held", "1 while this node holds a valid leader lease", it.lease_held),
            ("nodes", "Registered nodes", it.nodes),
            ("nodes_fenced", "Fenced nodes; other nodes lead in their place", it.fenced),
            ("offline_partitions", "Partitions of the cluster without a leader", it.leaderless),
            (
                "self_healing_nodes",
                "Lost nodes that keep replicas; only on the controller",
                len(it.healing.lost),
            ),
            (
                "self_healing_stuck",
                "1 while self-healing leaves partitions alone; only on the controller",
                it.healing.is_stuck,
            ),
        ):
            yield GaugeMetricFamily(f"streamlog_{name}", text, int(value))
        if it.activity_offset is not None:
            text = "End of the metadata written to __activity; only on its leader"
            yield GaugeMetricFamily("streamlog_activity_offset", text, it.activity_offset)
        if it.clock_skew_s is not None:
            text = "Offset of this node's clock from that of most nodes; negative: behind"
            yield GaugeMetricFamily("streamlog_clock_skew_seconds", text, it.clock_skew_s)
        healing = GaugeMetricFamily(
            "streamlog_self_healing_partitions",
            "Partitions with a replica on a lost node; only on the controller",
            labels=("state",),
        )
        for state in HEALING_STATES:
            healing.add_metric((state,), getattr(it.healing, state))
        yield healing
        unfit = GaugeMetricFamily(
            "streamlog_node_unfit",
            "1 where the node cannot lead for this reason and is not ready",
            labels=("reason",),
        )
        for reason in DISABLING:
            unfit.add_metric((reason,), int(reason in it.unfit))
        yield unfit
        roles = GaugeMetricFamily(
            "streamlog_quorum_role",
            "1 for the role of this node in the metadata quorum",
            labels=("role",),
        )
        for role in ROLES:
            roles.add_metric((role,), int(role == it.role))
        yield roles


class MachineGauges(Collector):
    """``collect`` asks the file system, which may take its time: not for the event loop."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily(
            "streamlog_build_info", "1; the label is the version", labels=("version",)
        )
        build.add_metric((__version__,), 1)
        yield build
        try:
            found = os.statvfs(self._data_dir)
        except OSError:
            return  # a disk that fails says so where it is written
        for name, text, blocks in (
            ("free", "Free bytes on the disk of data_dir", found.f_bavail),
            ("size", "Size of the disk of data_dir", found.f_blocks),
        ):
            yield GaugeMetricFamily(f"streamlog_disk_{name}_bytes", text, blocks * found.f_frsize)
