"""Faults of a running cluster, one after the other, drawn by a seed."""

import random
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from benchmarks.network import Network
from tests.history import Lane
from tests.integration.cuts import CUTS
from tests.integration.victims import victims
from tools.nodes.cluster import Cluster

KINDS: Final = ("kill", "pause", "cut", "move", "restart", "recreate")
"""``recreate`` is done by a client: its stream is part of the history."""
DOWN_S: Final = (0.1, 2.0)
PAUSES_S: Final = (0.7, 3.0)
"""Shorter and longer than a session."""
CUT_S: Final = (0.6, 3.5)
BETWEEN_S: Final = (0.5, 2.0)


class Faults:
    """``strike`` blocks until the cluster is whole again."""

    def __init__(
        self, cluster: Cluster, network: Network | None, kinds: Sequence[str], seed: int
    ) -> None:
        """``network``: without one nothing is cut."""
        self._cluster = cluster
        self._network = network
        self._random = random.Random(seed)
        self._kinds: dict[str, Callable[[Lane], str]] = {
            "kill": self._kill,
            "pause": self._pause,
            "cut": self._cut,
            "move": self._move,
            "restart": self._restart,
        }
        self._chosen = [kind for kind in kinds if kind in self._kinds]
        if network is None and "cut" in self._chosen:
            self._chosen.remove("cut")

    def strike(self, lanes: Sequence[Lane]) -> str:
        """One fault, at whatever the nodes are to one of these partitions; what it was."""
        self._wait(BETWEEN_S)
        if not self._chosen:
            return "nothing"
        kind, lane = self._random.choice(self._chosen), self._random.choice(lanes)
        began = time.monotonic()
        done = self._kinds[kind](lane)
        return f"{done} ({time.monotonic() - began:.1f} s)"

    def _kill(self, lane: Lane) -> str:
        """With -9."""
        who, chosen = self._victims(lane, ("leader", "follower", "controller", "two", "all"))
        self._cluster.kill(*chosen)
        self._wait(DOWN_S)
        self._cluster.start(*chosen)
        return f"kill {who} {chosen}"

    def _pause(self, lane: Lane) -> str:
        who, chosen = self._victims(lane, ("leader", "leader", "controller", "two"))
        for number in chosen:
            self._cluster[number].pause()
        try:
            self._wait(PAUSES_S)
        finally:
            for number in chosen:
                self._cluster[number].resume()
        self._wait_ready()
        return f"pause {who} {chosen}"

    def _cut(self, lane: Lane) -> str:
        network = self._network
        assert network is not None
        who, chosen = self._victims(lane, ("leader", "leader", "controller"))
        cut = self._random.choice(CUTS)
        cut(network, chosen[0])
        try:
            self._wait(CUT_S)
        finally:
            network.heal()
        self._wait_ready()
        return f"cut {who} {chosen}, {cut.__name__}"

    def _move(self, lane: Lane) -> str:
        """Leaders by hand, and sometimes the controller."""
        if self._random.random() < 0.3:
            self._command("cluster", "transfer-controller")
            return "transfer the controller"
        wanted = self._cluster.leader(lane) % len(self._cluster.nodes) + 1
        partition = [lane.stream, str(lane.partition)]
        self._command("cluster", "elect-leader", *partition, "--leader", str(wanted))
        return f"elect {wanted} for {lane.stream}"

    def _restart(self, lane: Lane) -> str:
        """As planned: leaders move before the node goes."""
        who, chosen = self._victims(lane, ("leader", "follower", "controller"))
        for number in chosen:
            try:
                self._cluster[number].stop()
            except subprocess.TimeoutExpired:
                self._cluster.kill(number)
        self._cluster.start(*chosen)
        return f"restart {who} {chosen}"

    def _command(self, *arguments: str) -> None:
        """It may be refused while the last fault is still felt; the next one is drawn then."""
        with suppress(AssertionError):
            self._cluster.command(*arguments)

    def _victims(self, lane: Lane, kinds: Sequence[str]) -> tuple[str, list[int]]:
        who = self._random.choice(kinds)
        return who, victims(self._cluster, who, lane)

    def _wait_ready(self) -> None:
        for node in self._cluster.nodes.values():
            node.wait_ready()

    def _wait(self, bounds_s: tuple[float, float]) -> None:
        threading.Event().wait(self._random.uniform(*bounds_s))
