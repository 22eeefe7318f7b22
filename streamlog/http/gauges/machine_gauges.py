"""Gauges of what the node stands on: its disk, and its version. Read where they become text."""

import os
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from streamlog import __version__


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
