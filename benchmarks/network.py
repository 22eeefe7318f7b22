"""Network namespaces: a node in each, joined by a bridge, and ways between them that can be cut.

A cut is silent, as a dead cable is: no packet arrives and nobody is told. It is made with a false
hardware address for the other's IP, so it goes one way, needs no packet filter, and lets what
already arrived be. Needs root and Linux; ``unavailable()`` says what is missing.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from itertools import count
from types import TracebackType
from typing import Final, Self

NOWHERE: Final = "02:00:00:00:00:01"
HOST: Final = 0
"""The outside, where clients and the nats-server are, among the numbers of nodes."""

_numbers = count()


def unavailable() -> str:
    """Why there can be no namespaces here; empty if there can."""
    if shutil.which("ip") is None:
        return "there is no `ip` program"
    probe = f"sl-probe-{os.getpid()}"
    command = ["ip", "netns", "add", probe]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"network namespaces are not allowed here: {done.stderr.strip()}"
    _ip("netns", "del", probe)
    return ""


class Network:
    """``with Network([1, 2, 3]) as network``: a namespace for each number."""

    def __init__(self, numbers: Iterable[int]) -> None:
        mark = f"{os.getpid() % 0xFFFFF:05x}{next(_numbers) % 16:x}"
        self.numbers = list(numbers)
        self._bridge = f"slb{mark}"
        self._namespaces = {i: f"sl{mark}-{i}" for i in self.numbers}
        self._outer = {i: f"slo{mark}{i}" for i in self.numbers}
        self._net = f"10.{64 + os.getpid() % 64}.{next(_numbers) % 250}"

    def __enter__(self) -> Self:
        try:
            self._create()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def address(self, number: int) -> str:
        """Its IP address."""
        return f"{self._net}.{number or 254}"

    def inside(self, number: int) -> list[str]:
        """What to put before a command so that it runs there."""
        return ["ip", "netns", "exec", self._namespaces[number]]

    def cut(self, source: int, *targets: int) -> None:
        """From now on nothing that ``source`` sends gets to ``targets``."""
        for target in targets:
            self._neighbour("replace", source, target, "lladdr", NOWHERE, "nud", "permanent")

    def split(self, *sides: Iterable[int]) -> None:
        """Cut every way between the sides, in both directions."""
        groups = [list(side) for side in sides]
        for mine in groups:
            for other in groups:
                if mine is not other:
                    for source in mine:
                        self.cut(source, *other)

    def heal(self) -> None:
        """Every way is open again."""
        for source in (HOST, *self.numbers):
            for target in (HOST, *self.numbers):
                if source != target:
                    with contextlib.suppress(subprocess.CalledProcessError):
                        self._neighbour("del", source, target)

    def slow(self, number: int, rate: str) -> None:
        """All that it is sent passes at this rate, such as ``1mbit``."""
        shape = ("tbf", "rate", rate, "burst", "16kb", "latency", "200ms")
        _run("tc", "qdisc", "replace", "dev", self._outer[number], "root", *shape)

    def _neighbour(self, action: str, source: int, target: int, *more: str) -> None:
        where = [] if source == HOST else ["-n", self._namespaces[source]]
        device = self._bridge if source == HOST else "eth0"
        _ip(*where, "neigh", action, self.address(target), *more, "dev", device)

    def _create(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self.address(HOST)}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for number, name in self._namespaces.items():
            outer = self._outer[number]
            _ip("netns", "add", name)
            _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", outer, "master", self._bridge, "up")
            _ip("-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def _remove(self) -> None:
        for number, name in self._namespaces.items():
            for command in (("link", "del", self._outer[number]), ("netns", "del", name)):
                with contextlib.suppress(subprocess.CalledProcessError):
                    _ip(*command)
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "del", self._bridge)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
