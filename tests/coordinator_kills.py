"""Kills of the leaders of some partitions, while a test goes on."""

import threading
from typing import Final

from tests.history import Lane
from tools.nodes.cluster import Cluster

KILLS: Final = 3


class Killing:
    """Kills leaders of these partitions, one after the other, while the body runs, and at least so many."""

    def __init__(self, cluster: Cluster, lanes: list[Lane], kills: int = KILLS) -> None:
        self._kills = kills
        self._cluster = cluster
        self._lanes = lanes
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Killing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        if self._problem is not None:
            raise self._problem

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        pause = threading.Event()
        try:
            for number in range(self._kills):
                pause.wait(0.7)
                victim = self._cluster.leader(self._lanes[number % len(self._lanes)])
                self._cluster.kill(victim)
                pause.wait(0.5)
                self._cluster.start(victim)
                self._cluster.wait_settled(self._lanes)
        except BaseException as error:
            self._problem = error
