"""The network that can be cut does what the tests of clusters take it to do."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from benchmarks.network import HOST, Network, unavailable
from tools.nodes.server_process import wait_until

PORT = 7_000
TIMEOUT_S = 0.3
LISTEN = """
import socket, sys
inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
inbox.bind((sys.argv[1], int(sys.argv[2])))
while True:
    data, sender = inbox.recvfrom(100)
    print(data.decode(), flush=True)
    inbox.sendto(b"yes", sender)
"""


class Echoes:
    """A process in each namespace that prints what it hears, and answers."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.processes = {
            i: subprocess.Popen(
                [*network.inside(i), sys.executable, "-c", LISTEN, network.address(i), str(PORT)],
                stdout=subprocess.PIPE,
            )
            for i in network.numbers
        }

    def answers(self, number: int, question: bytes = b"hello") -> bool:
        """Does it answer the outside?"""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.settimeout(TIMEOUT_S)
            probe.sendto(question, (self.network.address(number), PORT))
            try:
                return probe.recv(100) == b"yes"
            except OSError:
                return False

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.communicate()


def reaches(network: Network, source: int, target: int) -> bool:
    """Does one packet, sent from the one, make the other answer, and does the answer come?"""
    code = (
        "import socket, sys\n"
        "with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:\n"
        f"    probe.settimeout({TIMEOUT_S})\n"
        f"    probe.sendto(b'hello', ('{network.address(target)}', {PORT}))\n"
        "    try:\n"
        "        sys.exit(probe.recv(100) != b'yes')\n"
        "    except OSError:\n"
        "        sys.exit(1)\n"
    )
    command = [*network.inside(source), sys.executable, "-I", "-S", "-c", code]
    return subprocess.run(command, check=False).returncode == 0


@pytest.fixture
def echoes() -> Iterator[Echoes]:
    if reason := unavailable():
        pytest.skip(reason)
    with Network([1, 2, 3]) as network:
        echoes = Echoes(network)
        try:
            for i in network.numbers:
                wait_until(lambda i=i: echoes.answers(i), f"{i} answers")  # type: ignore[misc]
            yield echoes
        finally:
            echoes.close()


def test_ways_are_cut_and_healed(echoes: Echoes) -> None:
    network = echoes.network
    assert reaches(network, 1, 2)
    network.split([1], [2, 3])
    assert not reaches(network, 1, 2)
    assert not reaches(network, 2, 1)
    assert reaches(network, 2, 3)
    assert echoes.answers(1)
    network.heal()
    assert reaches(network, 1, 2)
    network.split([1], [HOST])
    assert not echoes.answers(1)
    assert reaches(network, 1, 2)
    network.heal()
    assert echoes.answers(1)


def test_a_cut_goes_one_way(echoes: Echoes) -> None:
    """What is sent still arrives; only the answer is missing."""
    network = echoes.network
    network.cut(2, HOST)
    assert not echoes.answers(2, b"one way")
    output = echoes.processes[2].stdout
    assert output is not None
    heard = output.readline()
    while heard == b"hello\n":
        heard = output.readline()
    assert heard == b"one way\n"
