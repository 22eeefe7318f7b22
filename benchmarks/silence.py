"""``python -m benchmarks.silence``: until the next ack, where a node falls silent; and whether one is ever replaced
for nothing.

Three nodes and a publisher of a message each 2 ms. A node is stopped (SIGSTOP), its cable is cut, its file system is
frozen (writes wait), or its disk does not return from syncs: the node that leads the partition, the controller, or a
node that is both. Cuts need root and network namespaces, freezing needs root and loop devices, hung syncs a C
compiler; what is not possible here is left out, and said.

``--soak MINUTES``: full load, while nodes stand still for 300 ms again and again, one after the other. It counts the
nodes that were fenced, the elections of controllers and leaders, and the leases that ran out.
"""

import argparse
import os
import random
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from benchmarks import network
from benchmarks.connection import TAIL_BYTES, Connection
from benchmarks.gap import Prober
from benchmarks.network import Network
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess, Settings
from tools.nodes.server_process import NatsServer

STREAM: Final = "silence"
PLACE: Final = (STREAM, 0)
NODES: Final = (1, 2, 3)
VICTIMS: Final = ("leader", "controller", "both")
WAYS: Final = ("stop", "cut", "freeze", "hang")
SHIM: Final = Path(__file__).with_name("hung_sync.c")
DISK_BYTES: Final = 256 << 20
PAUSE_S: Final = 0.3
REST_S: Final = 5.0
BATCH: Final = 500
BATCH_S: Final = 1.0
"""What is not acknowledged by then is not waited for: it was refused, or no node listened."""
SETTINGS: Final[Settings] = {
    "cluster": {"heartbeat_interval_ms": 30, "pause_tolerance_ms": 300, "leader_rebalance_ms": 0},
    "logging": {"format": "json"},
}
"""As the documentation has it for half a second. Leaders stay where they are: each election tells of a fault."""


class Silenced:
    """A cluster of which single nodes fall silent, in one of several ways, and come back."""

    def __init__(
        self, cluster: Cluster, apart: Network | None, *, freezes: bool, hangs: bool
    ) -> None:
        self.cluster = cluster
        self._network = apart
        possible = {"stop": True, "cut": apart is not None, "freeze": freezes, "hang": hangs}
        self.ways = [way for way in WAYS if possible[way]]

    @contextmanager
    def silent(self, number: int, way: str) -> Iterator[Callable[[], None]]:
        """What is given silences the node; in the end it comes back."""
        node = self.cluster[number]
        match way:
            case "stop":
                pid = node.pid
                strike, undo = (lambda: os.kill(pid, signal.SIGSTOP)), node.resume
            case "cut":
                assert self._network is not None
                apart, others = self._network, [0, *(it for it in NODES if it != number)]
                strike, undo = (lambda: apart.split([number], others)), apart.heal
            case "hang":
                hung = hung_file(node.directory)
                strike, undo = hung.touch, hung.unlink
            case _:
                mount = str(node.data_dir.parent)
                strike = lambda: _run("fsfreeze", "-f", mount)  # noqa: E731
                undo = lambda: _run("fsfreeze", "-u", mount)  # noqa: E731
        try:
            yield strike
        finally:
            undo()

    def place(self, victim: str) -> int:
        """Have the partition led as it has to be, and return the node that is to fall silent."""
        while True:
            self.cluster.wait_settled([PLACE])
            leader, controller = self.cluster.leader(PLACE), self.cluster.controller()
            if (leader == controller) == (victim == "both"):
                return controller if victim == "controller" else leader
            others = (it for it in NODES if it != controller)
            wanted = controller if victim == "both" else next(others)
            chosen = ("--leader", str(wanted), "--yes")
            with suppress(AssertionError):  # the controller may have changed: look again
                self.cluster.command("cluster", "elect-leader", STREAM, "0", *chosen)

    def gap_s(self, victim: str, way: str) -> float:
        """From the blow to the next ack."""
        number = self.place(victim)
        prober = Prober(self.cluster.nats.url.removeprefix("nats://"), STREAM)
        try:
            with self.silent(number, way) as strike:
                return prober.gap_s(strike)
        finally:
            prober.close()


@contextmanager
def silenced(directory: Path) -> Iterator[Silenced]:
    """Three nodes, each in a network and on a disk of its own where that is possible."""
    with ExitStack() as running:
        why_no_network = network.unavailable()
        apart = None if why_no_network else running.enter_context(Network(NODES))
        directory.mkdir(parents=True, exist_ok=True)
        why_no_disks = _why_no_disks(directory)
        shim = directory / "hung_sync.so"
        why_no_shim = _why_not("cc", "-shared", "-fPIC", "-o", str(shim), str(SHIM), "-ldl")
        for what, why in (
            ("cuts", why_no_network), ("freezing", why_no_disks), ("hung syncs", why_no_shim),
        ):  # fmt: skip
            if why:
                print(f"not measured: {what}: {why}")

        def node(number: int, folder: Path) -> NodeProcess:
            data_dir = folder / "disk" / "data"
            preload = {} if why_no_shim else {"LD_PRELOAD": str(shim)}
            environment = {**os.environ, **preload, "HUNG": str(hung_file(folder))}
            if not why_no_disks:
                running.enter_context(_disk(folder / "disk"))
            if apart is None:
                return NodeProcess(number, folder, data_dir=data_dir, environment=environment)
            return NodeProcess(
                number,
                folder,
                host=apart.address(number),
                data_dir=data_dir,
                prefix=apart.inside(number),
                environment=environment,
            )

        nats_host = "127.0.0.1" if apart is None else apart.address(0)
        nats = NatsServer(directory, nats_host, tuned=True)
        with Cluster(directory, settings=SETTINGS, nats=nats, make_node=node) as cluster:
            config = ("--replicas", "3", "--subject", STREAM, "--max-bytes", str(DISK_BYTES // 2))
            cluster.command("stream", "add", STREAM, *config)
            cluster.wait_settled([PLACE])
            yield Silenced(cluster, apart, freezes=not why_no_disks, hangs=not why_no_shim)


def hung_file(folder: Path) -> Path:
    """While it is there the node's syncs do not return."""
    return folder / "hung"


@contextmanager
def _disk(folder: Path) -> Iterator[None]:
    """A file system of its own at ``folder``, in a file beside it."""
    folder.mkdir(parents=True)
    image = folder.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    _run("mkfs.ext4", "-q", str(image))
    _run("mount", "-o", "loop", str(image), str(folder))
    try:
        yield
    finally:
        _run("umount", "-l", str(folder))


def _why_no_disks(directory: Path) -> str:
    missing = [it for it in ("mkfs.ext4", "mount", "fsfreeze") if shutil.which(it) is None]
    if missing:
        return f"there is no `{missing[0]}` program"
    try:
        with _disk(directory / "probe"):
            return ""
    except subprocess.CalledProcessError as error:
        return str(error.stderr).strip()


def _why_not(*command: str) -> str:
    """Run it; why that is not possible, or an empty text."""
    try:
        _run(*command)
    except FileNotFoundError:
        return f"there is no `{command[0]}` program"
    except subprocess.CalledProcessError as error:
        return str(error.stderr).strip()
    return ""


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def gaps(directory: Path, rounds: int, ways: list[str], victims: list[str]) -> None:
    with silenced(directory) as cluster:
        for way in (it for it in cluster.ways if it in ways):
            for victim in victims:
                found = sorted(1000 * cluster.gap_s(victim, way) for _ in range(rounds))
                print(
                    f"{way:6} {victim:11} median {statistics.median(found):5.0f} ms,"
                    f" {found[0]:.0f} to {found[-1]:.0f} ({rounds} rounds)",
                    flush=True,
                )


def soak(directory: Path, minutes: float, seed: int) -> int:
    """How many nodes were fenced, or controllers elected."""
    rng = random.Random(seed)
    with silenced(directory) as silent, Load(silent.cluster.nats.url) as load:
        cluster = silent.cluster
        time.sleep(REST_S)
        before, begun = _counts(directory), time.monotonic()
        pauses = 0
        while time.monotonic() < begun + 60 * minutes:
            with silent.silent(rng.choice(NODES), "stop") as stop:
                stop()
                time.sleep(PAUSE_S)
            pauses += 1
            time.sleep(rng.uniform(0.2, 3.0))
        took_s = time.monotonic() - begun
        load.end()
        found = {name: count - before[name] for name, count in _counts(directory).items()}
        print(
            f"{took_s / 60:.1f} minutes, {pauses} pauses of {PAUSE_S:g} s,"
            f" {load.acknowledged:,} messages acknowledged ({load.acknowledged / took_s:,.0f}/s): "
            + ", ".join(f"{name}: {count}" for name, count in found.items())
        )
        cluster.wait_settled([PLACE])
    return found["nodes fenced"] + found["controllers elected"]


class Load:
    """As many messages as the nodes take, from two processes."""

    def __init__(self, nats: str) -> None:
        self._nats = nats.removeprefix("nats://")
        self._processes: list[subprocess.Popen[str]] = []
        self.acknowledged = 0

    def __enter__(self) -> "Load":
        command = [sys.executable, "-m", "benchmarks.silence", "--load", self._nats]
        for _ in range(2):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            self._processes.append(process)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Counts what was acknowledged."""
        for process in self._processes:
            process.terminate()
            self.acknowledged += int(process.communicate()[0] or 0)
        self._processes.clear()


def publish(nats: str) -> None:
    """In batches; until it is terminated, and then prints how many messages were acknowledged."""
    ended = False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    line = b"PUB %s _INBOX.load 100\r\n%s\r\n" % (STREAM.encode(), b"x" * 100)
    acknowledged = 0
    with Connection(nats) as connection:
        connection.subscribe("_INBOX.load", 1)
        while not ended:
            connection.send(line * BATCH)
            got, deadline = 0, time.monotonic() + BATCH_S
            while got < BATCH and not ended and (left_s := deadline - time.monotonic()) > 0:
                if select.select([connection.socket], [], [], left_s)[0]:
                    size = connection.read()
                    connection.answer_pings(size)
                    got += connection.buffer.count(b'"seq"', TAIL_BYTES, TAIL_BYTES + size)
            acknowledged += got
    print(acknowledged)


COUNTED: Final = {
    "nodes fenced": '"session over"',
    "controllers elected": '"role": "leader"',
    "leaders elected": '"partition led"',
    "leases run out": "the controller is not heard",
}


def _counts(directory: Path) -> dict[str, int]:
    """Of the nodes' logs."""
    text = "".join(it.read_text() for it in directory.glob("node-*/*.log"))
    return {name: text.count(line) for name, line in COUNTED.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.silence", description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--way", action="append", choices=WAYS)
    parser.add_argument("--victim", action="append", choices=VICTIMS)
    parser.add_argument("--soak", type=float, metavar="MINUTES")
    parser.add_argument("--load", metavar="NATS", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=Path, help="where the nodes keep their data")
    parser.add_argument("--keep", action="store_true", help="keep the nodes' folders")
    options = parser.parse_args()
    if options.load:
        publish(options.load)
        return 0
    directory = Path(tempfile.mkdtemp(prefix="streamlog-silence-", dir=options.dir))
    try:
        if options.soak is not None:
            return 1 if soak(directory / "nodes", options.soak, options.seed) else 0
        ways, victims = options.way or list(WAYS), options.victim or list(VICTIMS)
        gaps(directory / "nodes", options.rounds, ways, victims)
        return 0
    finally:
        if options.keep:
            print(f"the nodes' folders are in {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
