"""sarama's own functional tests, against three nodes behind toxiproxy: ``sarama.toml`` says which, and what comes out.

They ask toxiproxy to cut connections to brokers, and Docker to stop and start one: a program of that name in their PATH
passes that on to the nodes.
"""

import contextlib
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.peers import go_modules
from tests.peers.expectations import Expectations
from tests.peers.sources import NoSourcesError
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.node_process import Settings
from tools.nodes.ports import free_port
from tools.nodes.server_process import ServerProcess, listens, wait_until

pytestmark = [pytest.mark.peers, pytest.mark.slow]

MODULE: Final = "github.com/IBM/sarama"
VERSION: Final = "v1.60.1"
TOXIPROXY: Final = "github.com/Shopify/toxiproxy/v2"
TOXIPROXY_VERSION: Final = "v2.5.0"
KAFKA_VERSION: Final = "4.0.0"
BROKERS: Final = 5
"""That the tests know, at 29091 and further ports; those beyond our nodes lead to them again."""
FIRST_PORT: Final = 29_091
SETTINGS: Final[Settings] = {
    "kafka": {"default_replicas": 2},
    "groups": {"initial_rebalance_delay_ms": 0},
    "nats_listen": {},
}
"""As their Kafka has it."""
RUN_TIMEOUT_S: Final = 420.0
POLL_S: Final = 0.05
LIST: Final = Path(__file__).with_name("sarama.toml")
DOCKER: Final = """#!/bin/sh
# docker compose stop|start kafka-N: an order, until it is carried out. docker compose logs --since TIME kafka-N
case "$2" in
    stop | start) ;;
    logs) exec cat "{nodes}/node-${{5#kafka-}}/node.log" ;;
    *) exit 1 ;;
esac
touch "{orders}/$2 $3"
while [ -e "{orders}/$2 $3" ]; do sleep 0.05; done
"""


@pytest.fixture(scope="module")
def folder() -> Path:
    try:
        found = go_modules.module(MODULE, VERSION)
        go_modules.build(found, "-tags=functional")
    except NoSourcesError as error:
        pytest.skip(f"the tests of sarama cannot be had: {error}")
    return found


@pytest.fixture(scope="module")
def toxiproxy() -> Path:
    build, built_of = f"toxiproxy-{TOXIPROXY_VERSION}", f"{TOXIPROXY}/cmd/server"
    try:
        return go_modules.program("toxiproxy", build, TOXIPROXY, TOXIPROXY_VERSION, built_of)
    except NoSourcesError as error:
        pytest.skip(f"toxiproxy cannot be had: {error}")


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Its nodes name the ports of their proxies. Start it behind ``proxies``."""
    cluster = Cluster(tmp_path / "nodes", settings=SETTINGS, nats=NoNats())
    for number, node in cluster.nodes.items():
        advertised = {"advertised_port": FIRST_PORT + number - 1}
        node.add_settings(kafka=advertised, node={"rack": str(number)})
    return cluster


@pytest.fixture
def proxies(toxiproxy: Path, cluster: Cluster, tmp_path: Path) -> Iterator[str]:
    """The address of a toxiproxy in front of the nodes."""
    nodes, port = [*cluster.nodes.values()], free_port()
    content = [
        {
            "name": f"kafka{number + 1}",
            "listen": f"127.0.0.1:{FIRST_PORT + number}",
            "upstream": nodes[number % len(nodes)].kafka,
            "enabled": True,
        }
        for number in range(BROKERS)
    ]
    config = tmp_path / "proxies.json"
    config.write_text(json.dumps(content))
    command = [str(toxiproxy), "-host", "127.0.0.1", "-port", str(port), "-config", str(config)]
    server = ServerProcess(command, tmp_path / "toxiproxy.log")
    server.spawn()
    try:
        wait_until(lambda: listens(port), "toxiproxy")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()


@contextlib.contextmanager
def docker(cluster: Cluster, folder: Path) -> Iterator[Path]:
    """The folder of a program of that name, which has nodes stopped and started."""
    orders, programs = folder / "orders", folder / "bin"
    for it in (orders, programs):
        it.mkdir()
    program = programs / "docker"
    program.write_text(DOCKER.format(orders=orders, nodes=folder / "nodes"))
    program.chmod(0o755)
    ended = threading.Event()

    def obey() -> None:
        while not ended.wait(POLL_S):
            for order in orders.iterdir():
                verb, number = order.name.split(" kafka-")
                node = cluster[int(number)]
                if verb == "stop":
                    node.end()
                elif not node.is_running():
                    node.start()
                order.unlink()

    thread = threading.Thread(target=obey)
    thread.start()
    try:
        yield programs
    finally:
        ended.set()
        thread.join()


def test_saramas_own_tests_pass(
    cluster: Cluster,
    proxies: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = Expectations.read(LIST)
    collected = go_modules.names_in(folder, expected.files)
    names = [name for name in collected if expected.place(name) != "left out"]
    with cluster, docker(cluster, tmp_path) as programs:
        environment = {
            "TOXIPROXY_ADDR": proxies,
            "KAFKA_VERSION": KAFKA_VERSION,
            "PATH": f"{programs}:{os.environ['PATH']}",
        }
        said = go_modules.run(folder, names, environment, RUN_TIMEOUT_S)
    found, texts = go_modules.outcomes(said), go_modules.said_by(said)
    failed = [name for name in names if found.get(name, "FAIL") == "FAIL"]
    unexpected = [name for name in failed if not expected.is_failing(name)]
    with capsys.disabled():
        print(f"\nsarama {VERSION}: {dict(Counter(found.values()))}")
        for name in filter(expected.is_failing, names):
            print(f"  listed as failing: {name}: {found.get(name)}")
    assert "PASS" in found.values()
    assert unexpected == [], "\n\n".join(f"{it}:\n{texts.get(it, said)}" for it in unexpected)
