"""Groups whose members and nodes are killed: all is processed, nothing after its commit."""

import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.history import Lane
from tests.integration.consumer_group import ConsumerGroup, Load
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import Settings

GAP_S_MAX: Final = 120.0
"""A bound that a busy machine keeps, too; how long it really takes is printed."""
SHORT_SESSION_MS: Final = 3_000
SETTINGS: Final[Settings] = {
    "groups": {
        "initial_rebalance_delay_ms": 500,
        "session_timeout_ms_min": 1,
        "consumer_session_timeout_ms": SHORT_SESSION_MS,
        "consumer_heartbeat_interval_ms": 500,
    }
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that each test leaves running."""
    with Cluster(tmp_path_factory.mktemp("groups"), settings=SETTINGS) as cluster:
        yield cluster


def create(cluster: Cluster, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.servers})
    admin.create_topics([NewTopic(name, partitions, 3)])[name].result(30)
    cluster.wait_settled([Lane(name, it) for it in range(partitions)])


def described(cluster: Cluster, group_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.command("group", "info", group_id, "--json"))
    return found


def campaign(
    cluster: Cluster,
    directory: Path,
    topic: str,
    faults: Callable[[ConsumerGroup, Load], None],
    *,
    partitions: int,
    members: int,
    count: int,
    rate: float,
    **settings: Any,
) -> None:
    """``faults`` must leave all nodes and some member running, or about to."""
    create(cluster, topic, partitions)
    with ConsumerGroup(directory, cluster.servers, f"of-{topic}", topic, **settings) as group:
        group.add(members)
        group.wait_for(lambda history: history.is_whole(partitions), "no group came together")
        with Load(cluster.servers, topic, partitions=partitions, count=count, rate=rate) as load:
            faults(group, load)
        load.check()
        group.wait_for(lambda history: history.committed() == load.ends, "not all is committed")
        group.stop()
        history = group.history()
        _say(f"{topic}: {history.describe()}")
        history.check(load.ends)
        assert max(history.gaps_s(), default=0.0) < GAP_S_MAX
        found = described(cluster, group.group_id)
        assert (found["state"], found["members"], found["lag"]) == ("Empty", [], 0)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_and_the_coordinator_are_killed(
    cluster: Cluster, tmp_path: Path, protocol: str
) -> None:
    def faults(group: ConsumerGroup, load: Load) -> None:
        load.done.wait(1.0)
        group.kill(group.running[0])
        group.add()
        load.done.wait(SHORT_SESSION_MS / 1000 + 1.5)
        coordinator = described(cluster, group.group_id)["coordinator"]
        cluster.kill(coordinator)
        group.kill(group.running[0])
        assert described(cluster, group.group_id)["coordinator"] != coordinator, "another answers"
        load.done.wait(0.5)
        group.add()
        cluster.start(coordinator)

    campaign(
        cluster,
        tmp_path,
        f"short-{protocol}",
        faults,
        partitions=4,
        members=2,
        count=20_000,
        rate=2_000,
        session_ms=SHORT_SESSION_MS,
        protocol=protocol,
    )


def chosen_nodes(cluster: Cluster, group: ConsumerGroup) -> list[int]:
    """The coordinator, more often than any, or all."""
    match random.randrange(5):
        case 0:
            return list(cluster.nodes)
        case 1:
            return [random.choice(list(cluster.nodes))]
        case _:
            return [described(cluster, group.group_id)["coordinator"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "assignor"),
    [("classic", "range"), ("classic", "cooperative-sticky"), ("consumer", "uniform")],
)
def test_a_million_records(tmp_path: Path, protocol: str, assignor: str) -> None:
    partitions, members = 12, 6
    cluster = Cluster(tmp_path / "nodes", settings=SETTINGS)

    def faults(group: ConsumerGroup, load: Load) -> None:
        rounds = 0
        while not load.done.wait(random.uniform(2.0, 6.0)):
            rounds += 1
            if random.random() < 0.5:
                group.kill(random.choice(group.running))
                load.done.wait(random.uniform(0.0, 3.0))
                group.add()
            else:
                victims = chosen_nodes(cluster, group)
                cluster.kill(*victims)
                load.done.wait(random.uniform(0.0, 3.0))
                cluster.start(*victims)
            if rounds == 3:
                group.add(2)
        _say(f"{rounds} times something was killed")

    with cluster:
        campaign(
            cluster,
            tmp_path / "group",
            f"million-{protocol}-{assignor}",
            faults,
            partitions=partitions,
            members=members,
            count=1_000_000,
            rate=10_000,
            protocol=protocol,
            assignor=assignor,
        )


def _say(text: str) -> None:
    """Shown when the test fails, or with ``-s``."""
    print(text, file=sys.stderr)
