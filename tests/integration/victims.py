"""Whom a fault is to strike, by what they are to a partition."""

import random
from typing import Final

from tests.history import Lane
from tools.nodes.cluster import Cluster

VICTIMS: Final = ("leader", "follower", "controller", "two", "all")


def victims(cluster: Cluster, kind: str, lane: Lane) -> list[int]:
    """Their numbers, as things are now."""
    everyone = list(cluster.nodes)
    match kind:
        case "leader":
            return [cluster.leader(lane)]
        case "controller":
            return [cluster.controller()]
        case "follower":
            leader = cluster.leader(lane)
            return [random.choice([i for i in everyone if i != leader])]
        case "two":
            return random.sample(everyone, 2)
        case _:
            return everyone
