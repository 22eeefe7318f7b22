"""A real Prometheus scrapes three nodes under load: its targets, the rules, the dashboards."""

import asyncio
import json
import os
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamlog.nats_tools.publisher import Publisher
from tests.dashboards import NAMES, Query, filled_in, plot, queries
from tools.nodes.ports import free_port
from tools.nodes.server_process import wait_until

PROMETHEUS = shutil.which("prometheus")
DEPLOY = Path(__file__).parents[2] / "deploy"
LOAD_S = float(os.environ.get("PROMETHEUS_LOAD_S", "12"))
PLOTS = os.environ.get("DASHBOARD_PLOTS")
"""A folder for the pictures of the docs."""

QUIET = {
    "Acknowledged and refused",
    "Trouble",
    "Throttled and closed",
    "In-sync sets: lost and regained members",
}
"""Panels whose series are not there before something goes wrong."""

pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(PROMETHEUS is None, reason="no prometheus (apt-get install prometheus)"),
]


class Prometheus:
    """Scrapes nodes every second, with the rules that we ship."""

    def __init__(self, folder: Path, targets: list[str]) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
        config["rule_files"] = [str(DEPLOY / "alerts.yml")]
        config["global"] = {"evaluation_interval": "1s"}
        (job,) = config["scrape_configs"]
        job["scrape_interval"] = job["scrape_timeout"] = "1s"
        job["static_configs"] = [{"targets": targets}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._command = [
            str(PROMETHEUS),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            "--log.level=warn",
        ]
        self._log = (folder / "prometheus.log").open("wb")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log)
        wait_until(self._is_ready, "prometheus is not ready")

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(20)
        self._log.close()

    def _is_ready(self) -> bool:
        try:
            return bool(self.ask("query", query="vector(1)"))
        except OSError:
            return False

    def ask(self, what: str, **asked: str) -> Any:
        """The data of an answer; an expression that is none is an HTTPError."""
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(asked)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]


@pytest.fixture(scope="module")
def loaded(trio: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """What it knows after some seconds of load; nobody publishes any more."""
    nodes = [node["http"].removeprefix("http://") for node in trio.addresses["nodes"]]
    prometheus = Prometheus(tmp_path_factory.mktemp("prometheus"), nodes)
    prometheus.start()
    try:
        asyncio.run(load(trio, LOAD_S))
        yield prometheus
    finally:
        prometheus.stop()


async def load(trio: Any, seconds: float) -> None:
    """Publishers, and a consumer group that commits."""
    from aiokafka import AIOKafkaConsumer

    from streamlog.client.cluster import Cluster

    async with Cluster.at(trio.kafka) as cluster:
        for name in ("orders", "payments"):
            await create(cluster, name)
    consumer = AIOKafkaConsumer(
        "orders", "payments", bootstrap_servers=trio.kafka, group_id="billing",
        auto_offset_reset="earliest", auto_commit_interval_ms=500,
    )  # fmt: skip
    async with Publisher(trio.nats) as publisher:
        await consumer.start()
        deadline = time.monotonic() + seconds
        try:
            while time.monotonic() < deadline:
                for name in ("orders", "payments"):
                    async for _ in publisher.publish_all(name, [b"x" * 200] * 200):
                        pass
                await consumer.getmany(timeout_ms=20, max_records=300)
        finally:
            await consumer.stop()


async def create(cluster: Any, name: str) -> None:
    from streamlog.metadata.commands import CreateStream, encode_command
    from streamlog.metadata.stream.stream_config import StreamConfig

    config = StreamConfig.of(name=name, replicas=3)
    await cluster.command(encode_command(CreateStream(config=config)))


def test_every_node_is_scraped(loaded: Prometheus) -> None:
    targets = loaded.ask("targets")["activeTargets"]
    assert [(it["health"], it["lastError"]) for it in targets] == [("up", "")] * 3


def test_the_rules_are_evaluated_and_nothing_fires(loaded: Prometheus) -> None:
    rules = [rule for group in loaded.ask("rules")["groups"] for rule in group["rules"]]
    shipped = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    assert len(rules) == sum(len(group["rules"]) for group in shipped)
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
    assert [rule["name"] for rule in rules if rule.get("state") == "firing"] == []
    recorded = loaded.ask("query", query="streamlog:append_records:rate1m")["result"]
    assert float(recorded[0]["value"][1]) > 0


@pytest.mark.parametrize("query", list(queries()), ids=lambda it: f"{it.board}: {it.panel}")
def test_every_panel_has_an_answer(loaded: Prometheus, query: Query) -> None:
    found = loaded.ask("query", query=filled_in(query.expression))["result"]
    assert found or query.panel in QUIET


def test_what_was_published_is_what_is_told(loaded: Prometheus) -> None:
    def total(expression: str) -> float:
        return float(loaded.ask("query", query=expression)["result"][0]["value"][1])

    acks = total("sum(streamlog_publish_acked_total)")
    assert acks > 0
    assert total("sum(streamlog_append_records_total)") >= acks
    assert total("max(streamlog_nodes)") == total("count(up)") == 3
    assert total("max(abs(streamlog_clock_skew_seconds))") < 0.5, "it is one machine's clock"


@pytest.mark.skipif(PLOTS is None, reason="DASHBOARD_PLOTS names no folder")
def test_the_pictures_of_the_docs(loaded: Prometheus) -> None:
    end = time.time()
    times = {"start": str(end - LOAD_S), "end": str(end), "step": "1"}
    answers = {
        query: loaded.ask("query_range", query=filled_in(query.expression), **times)["result"]
        for query in queries()
    }
    for name in NAMES:
        plot(name, answers, Path(str(PLOTS)) / f"grafana-{name}.png")
