"""A network that loses, delays, reorders and duplicates packets between namespaces.

Each namespace, and the outside, has a TUN device; one process (this file, run as a program) carries
the packets from one to the other, and does to them what the weather says. Needs root and Linux.
"""

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

HOST: Final = 0
"""The outside, where clients and the nats-server are, among the numbers of nodes."""
TUN: Final = "/dev/net/tun"
TUNSETIFF: Final = 0x400454CA
IFF_TUN_NO_PI: Final = 0x1001
CLONE_NEWNET: Final = 0x40000000
PACKET_BYTES_MAX: Final = 65_536
IDLE_S: Final = 0.5

_numbers = count()


class Weather(NamedTuple):
    """What befalls each packet."""

    loss: float = 0.0
    duplicate: float = 0.0
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    """The delay is even in ``delay_ms`` ± this, packet by packet: they overtake each other."""


CALM: Final = Weather()


class RoughNetwork:
    """``with RoughNetwork([1, 2, 3]) as network``: a namespace for each number."""

    def __init__(self, numbers: Iterable[int]) -> None:
        mark = f"{os.getpid() % 0xFFFFF:05x}{next(_numbers) % 16:x}"
        self.numbers = list(numbers)
        self._namespaces = {i: f"sr{mark}-{i}" for i in self.numbers}
        self._device = f"sr{mark}"
        self._net = f"10.{128 + os.getpid() % 64}.{next(_numbers) % 250}"
        self._switch: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            for name in self._namespaces.values():
                _ip("netns", "add", name)
            ends = {self.address(HOST): ""}
            ends |= {self.address(i): name for i, name in self._namespaces.items()}
            command = [sys.executable, "-I", "-S", __file__, self._device, json.dumps(ends)]
            self._switch = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert self._switch.stdout is not None
            if self._switch.stdout.readline() != b"ready\n":
                raise OSError("the switch did not start")
            for number in (HOST, *self.numbers):
                self._join(number)
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

    def set_weather(self, weather: Weather) -> None:
        """From the next packet on."""
        assert self._switch is not None
        assert self._switch.stdin is not None
        self._switch.stdin.write(json.dumps(weather._asdict()).encode() + b"\n")
        self._switch.stdin.flush()

    def _join(self, number: int) -> None:
        where = [] if number == HOST else ["-n", self._namespaces[number]]
        _ip(*where, "addr", "add", f"{self.address(number)}/24", "dev", self._device)
        _ip(*where, "link", "set", self._device, "up")
        if number != HOST:
            _ip(*where, "link", "set", "lo", "up")

    def _remove(self) -> None:
        if self._switch is not None:
            self._switch.kill()
            self._switch.communicate()
        for name in self._namespaces.values():
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", name)


def unavailable() -> str:
    """Why there can be no such network here; empty if there can."""
    if not Path(TUN).exists():
        return f"there is no {TUN}"
    return "" if os.access(TUN, os.R_OK | os.W_OK) else f"{TUN} may not be used"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


# The switch, a process of its own


def main() -> None:
    device, ends = sys.argv[1], json.loads(sys.argv[2])
    devices = {packed(address): open_device(device, name) for address, name in ends.items()}
    print("ready", flush=True)
    carry(devices)


def packed(address: str) -> bytes:
    return bytes(int(part) for part in address.split("."))


def open_device(device: str, namespace: str) -> int:
    """A TUN device of that name in a namespace ("": ours)."""
    setns = ctypes.CDLL(None, use_errno=True).setns
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    if namespace:
        there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
        if setns(there, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(there)
    fd = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TUN_NO_PI))
    if setns(home, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
    os.close(home)
    return fd


def carry(devices: dict[bytes, int]) -> None:
    """Carry packets until standard input ends; each line of it is a change of the weather."""
    weather, order = CALM, count()
    waiting: list[tuple[float, int, int, bytes]] = []  # due, order, target, packet
    sources = [*devices.values(), 0]
    while True:
        wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else IDLE_S
        for fd in select.select(sources, [], [], wait)[0]:
            if fd == 0:
                line = sys.stdin.readline()
                if not line:
                    return
                weather = Weather(**json.loads(line))
                continue
            for packet in packets(fd):
                target = devices.get(packet[16:20])
                if target is not None:
                    for due in fates(weather):
                        heapq.heappush(waiting, (due, next(order), target, packet))
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, _, target, packet = heapq.heappop(waiting)
            with contextlib.suppress(OSError):  # it is down, or its queue is full: lost
                os.write(target, packet)


def packets(fd: int) -> Iterable[bytes]:
    """All IPv4 packets that have arrived."""
    while True:
        try:
            packet = os.read(fd, PACKET_BYTES_MAX)
        except BlockingIOError:
            return
        if packet and packet[0] >> 4 == 4:
            yield packet


def fates(weather: Weather) -> Iterable[float]:
    """When the packet arrives: never, once or twice."""
    copies = 2 if random.random() < weather.duplicate else 1
    for _ in range(copies):
        if random.random() >= weather.loss:
            delay_ms = weather.delay_ms + random.uniform(-1, 1) * weather.jitter_ms
            yield time.monotonic() + max(0.0, delay_ms) / 1000


if __name__ == "__main__":
    main()
