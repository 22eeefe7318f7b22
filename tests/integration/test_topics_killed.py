"""kill -9 of nodes that create very many topics: each one that was told to be there is, and is whole."""

import contextlib
import random
import threading
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tools.nodes.cluster import Cluster

TOPICS = 300
KILLS = 3
TIMEOUT_S = 30.0


@pytest.mark.parametrize("nodes", [1, 3])
def test_topic_that_was_created_outlives_a_kill_and_none_is_there_in_part(
    tmp_path: Path, nodes: int
) -> None:
    told: set[str] = set()
    pace = random.Random(nodes)
    with Cluster(tmp_path, nodes=nodes) as cluster:
        for kill in range(KILLS):
            admin = AdminClient({"bootstrap.servers": cluster[1].kafka, "log_level": 0})
            for part in range(2):
                topics = [NewTopic(f"k{kill}.{part}.{it}", 1, nodes) for it in range(TOPICS)]
                asked = admin.create_topics(topics, request_timeout=TIMEOUT_S)
                killer = threading.Timer(pace.uniform(0.0, 0.5), cluster.kill)
                if part:
                    killer.start()
                for name, answer in asked.items():
                    with contextlib.suppress(KafkaException):
                        answer.result(TIMEOUT_S)
                        told.add(name)
                if part:
                    killer.join()
            cluster.start()
        there = {name for name, _ in cluster.view().partitions if name.startswith("k")}
        assert told <= there
        assert len(told) >= KILLS * TOPICS
        servers = ",".join(cluster[it].kafka for it in range(1, nodes + 1))
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        failures: list[object] = []
        for name in there:
            producer.produce(name, b"x", on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(TIMEOUT_S) == 0
        assert failures == [None] * len(there)
