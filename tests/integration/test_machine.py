"""Several nodes of one machine: one configuration, one supervisor, a process each."""

import contextlib
import json
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import nats
import psutil
import pytest
import tomli_w

from tests.integration.kafka_readers import confluent
from tools.nodes.node_process import Settings
from tools.nodes.ports import free_ports
from tools.nodes.server_process import (
    ServerProcess,
    http_get,
    program,
    run_streamlog,
    wait_until,
)

PROCESSES: Final = 2
TIMEOUT_S: Final = 60.0
Published = dict[str, list[bytes]]
"""What was acknowledged, by subject, in order."""


class Machine(ServerProcess):
    """``streamlog serve`` of so many nodes; the same ports and folder at each start."""

    def __init__(self, directory: Path, processes: int = PROCESSES) -> None:
        self.kafka_port, self.http_port, self.nats_port = (free_ports(3) for _ in range(3))
        self.config = directory / "node.toml"
        self.data_dir = directory / "data"
        self.processes = processes
        command = [program("streamlog"), "serve", "--config", str(self.config)]
        super().__init__(command, directory / "log")
        self.configure(processes)

    def configure(self, processes: int, **more: dict[str, object]) -> None:
        self.processes = processes
        content: Settings = {
            "node": {"data_dir": str(self.data_dir), "processes": processes},
            "kafka": {"port": self.kafka_port},
            "http": {"port": self.http_port},
            "nats": {"servers": []},
            "nats_listen": {"port": self.nats_port},
            "cluster": {"id": "machine"},
        }
        self.config.write_text(tomli_w.dumps({**content, **more}))

    @property
    def kafka(self) -> str:
        """One node is enough to find the others."""
        return f"127.0.0.1:{self.kafka_port}"

    @property
    def nats_ports(self) -> Sequence[int]:
        return range(self.nats_port, self.nats_port + self.processes)

    def start(self) -> None:
        self.spawn()
        self.wait_ready()

    def wait_ready(self) -> None:
        wait_until(self.is_ready, "all nodes are ready", TIMEOUT_S)

    def is_ready(self) -> bool:
        self.check_running()
        ports = range(self.http_port, self.http_port + self.processes)
        return all(http_get(f"http://127.0.0.1:{port}/readyz")[0] == 200 for port in ports)

    def nodes(self) -> dict[int, psutil.Process]:
        """The processes by the ids of their nodes."""
        found = {}
        for child in psutil.Process(self.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                words = child.cmdline()
                if "--node" not in words:
                    continue  # it begins, or has ended
                found[int(words[words.index("--node") + 1])] = child
        return found

    def lines(self, event: str) -> list[dict[str, object]]:
        """Of the log: those of an event."""
        lines = [json.loads(it) for it in self.log_text().splitlines() if it.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def command_line(self, *arguments: str) -> tuple[int, str]:
        done = run_streamlog(arguments, {}, timeout_s=TIMEOUT_S)
        return done.returncode, done.stdout + done.stderr

    def ask(self, *arguments: str) -> str:
        code, said = self.command_line(*arguments, "--bootstrap-server", self.kafka)
        assert code == 0, said
        return said


@pytest.fixture
def new_machine(tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    machines: list[Machine] = []

    def create(processes: int = PROCESSES) -> Machine:
        machines.append(Machine(tmp_path, processes))
        return machines[-1]

    yield create
    for each in machines:
        each.kill()


@pytest.fixture
def machine(new_machine: Callable[..., Machine]) -> Machine:
    started = new_machine()
    started.start()
    return started


def gone(processes: Sequence[psutil.Process]) -> bool:
    return not any(it.is_running() and it.status() != psutil.STATUS_ZOMBIE for it in processes)


async def publish(machine: Machine, published: Published, count: int = 20) -> None:
    """At each port to each subject: also what another node leads."""
    for port in machine.nats_ports:
        client = await nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False)
        for subject, acked in published.items():
            for _ in range(count):
                data = b"%s %d at %d" % (subject.encode(), len(acked), port)
                await client.jetstream(domain="streamlog").publish(subject, data, timeout=20.0)
                acked.append(data)
        await client.close()


def check_read(machine: Machine, published: Published) -> None:
    """By a Kafka client that knows the address of one node."""
    for subject, acked in published.items():
        found = confluent(machine.kafka, subject, "beginning", len(acked))
        assert [value for _, value in found] == acked


def leaders(machine: Machine) -> dict[str, int]:
    from confluent_kafka.admin import AdminClient

    topics = AdminClient({"bootstrap.servers": machine.kafka}).list_topics(timeout=20.0).topics
    return {name: topic.partitions[0].leader for name, topic in topics.items()}


async def test_nodes_share_the_work_and_come_back(machine: Machine) -> None:
    published: Published = {"a": [], "b": []}
    for name in published:
        machine.ask("stream", "add", name, "--subject", name)
    assert set(leaders(machine).values()) == {1, 2}
    await publish(machine, published)
    check_read(machine, published)

    nodes = machine.nodes()
    nodes[2].kill()
    wait_until(lambda: machine.nodes().get(2) not in (None, nodes[2]), "node 2 is started again")
    machine.wait_ready()
    await publish(machine, published)
    check_read(machine, published)
    assert machine.nodes()[1] == nodes[1], "the other node was not touched"
    (ended,) = machine.lines("a node's process ended")
    assert (ended["node"], ended["how"], ended["code"]) == (2, "killed by SIGKILL", "SL-0006")

    nodes = machine.nodes()
    assert machine.stop(TIMEOUT_S) == 0
    assert gone([*nodes.values()])
    stopped = machine.lines("stopped")
    assert [it["clean"] for it in stopped] == [True, True]
    assert {it["node_id"] for it in stopped} == {1, 2}
    assert "Traceback" not in machine.log_text()

    machine.start()
    check_read(machine, published)


async def test_no_node_outlives_its_supervisor(machine: Machine) -> None:
    published: Published = {"a": [], "b": []}
    for name in published:
        machine.ask("stream", "add", name, "--subject", name)
    await publish(machine, published)
    nodes = [*machine.nodes().values()]
    assert len(nodes) == PROCESSES
    machine.kill()
    wait_until(lambda: gone(nodes), "the nodes are gone")
    assert [it["clean"] for it in machine.lines("stopped")] == [True, True]
    machine.start()
    check_read(machine, published)


def test_signals_to_every_process_are_no_impatience(machine: Machine) -> None:
    """As systemd sends them, where a unit has not KillMode=mixed."""
    nodes = machine.nodes()
    for process in nodes.values():
        process.send_signal(signal.SIGTERM)
    code = machine.stop(TIMEOUT_S)
    assert code == 0, machine.log_text()
    assert gone([*nodes.values()])
    assert not machine.lines("stopping at once")


def test_a_second_signal_does_not_wait(machine: Machine) -> None:
    nodes = machine.nodes()
    for process in nodes.values():
        process.suspend()
    machine.ask_to_stop()
    wait_until(lambda: bool(machine.lines("stopping")), "the first signal is seen")
    assert machine.is_running()
    machine.ask_to_stop()
    assert machine.wait(TIMEOUT_S) == 128 + signal.SIGTERM
    wait_until(lambda: gone([*nodes.values()]), "the nodes are gone")


def test_certificates_are_loaded_again_by_all(machine: Machine) -> None:
    psutil.Process(machine.pid).send_signal(signal.SIGHUP)
    said = "SIGHUP: there are no certificates to load again"
    wait_until(lambda: {it["node_id"] for it in machine.lines(said)} == {1, 2}, said)


def test_replicas_are_not_on_one_machine(machine: Machine) -> None:
    arguments = ("stream", "add", "s", "--subject", "s", "--replicas", "2")
    code, said = machine.command_line(*arguments, "--bootstrap-server", machine.kafka)
    assert code == 1
    assert "2 asked for, and the 2 nodes that can take them are on 1 machine" in said


def test_commands_know_all_nodes(machine: Machine) -> None:
    config = ("--config", str(machine.config))
    code, said = machine.command_line("health", "--ready", *config)
    assert (code, said.count("is ready")) == (0, 2)
    code, said = machine.command_line("health", "--node", "2", "--json", *config)
    assert (code, json.loads(said)["alive"]) == (0, True)
    code, said = machine.command_line("health", "--node", "3", *config)
    assert code == 2
    assert "name one of 1, 2" in said
    code, said = machine.command_line("doctor", *config)
    assert "Node 1 says that it is ready" in said
    assert "Node 2 says that it is ready" in said
    nodes = machine.nodes()
    nodes[2].suspend()
    try:
        code, said = machine.command_line("health", "--timeout", "1", *config)
        assert code == 1
        assert said.count("is alive") == 1
        assert said.count("is not alive") == 1
    finally:
        nodes[2].resume()


async def test_from_one_node_to_two_and_back(new_machine: Callable[..., Machine]) -> None:
    machine = new_machine(1)
    machine.start()
    published: Published = {"a": []}
    machine.ask("stream", "add", "a", "--subject", "a")
    await publish(machine, published)
    assert machine.stop(TIMEOUT_S) == 0

    machine.configure(2)
    machine.start()
    published["b"] = []
    machine.ask("stream", "add", "b", "--subject", "b")
    assert leaders(machine).items() >= {"a": 1, "b": 2}.items()
    await publish(machine, published)
    check_read(machine, published)
    assert machine.stop(TIMEOUT_S) == 0

    machine.configure(1)
    machine.spawn()
    assert machine.wait(TIMEOUT_S) == 2
    assert "node-2 has data of node 2" in machine.log_text()
    code, said = machine.command_line("config", "check", str(machine.config))
    assert code == 1
    assert "node-2 has data of node 2" in said

    machine.configure(2)
    machine.start()
    machine.ask("cluster", "drain", "2", "--wait", "--timeout", "60")
    assert leaders(machine).items() >= {"a": 1, "b": 1}.items()
    assert machine.stop(TIMEOUT_S) == 0
    machine.configure(1)
    (machine.data_dir / "node-2").rename(machine.data_dir / "was-node-2")
    machine.start()
    machine.ask("cluster", "remove-node", "2", "--yes")
    check_read(machine, published)
    assert machine.stop(TIMEOUT_S) == 0

    machine.configure(2)
    machine.start()
    machine.ask("stream", "move", "b", "0", "2", "--wait", "--timeout", "60")
    assert leaders(machine).items() >= {"a": 1, "b": 2}.items()
    await publish(machine, published)
    check_read(machine, published)


def test_one_that_cannot_start_ends_all(new_machine: Callable[..., Machine]) -> None:
    """Its port is taken, say: nothing that ran before is lost by that."""
    machine = new_machine()
    (machine.data_dir / "node-2").mkdir(parents=True)
    (machine.data_dir / "node-2" / "node.json").write_text("{}")
    machine.spawn()
    assert machine.wait(TIMEOUT_S) == 2
    assert "node-2/node.json is damaged" in machine.log_text()
    (refused,) = machine.lines("a node does not start with its configuration")
    assert refused["node"] == 2


def test_a_wrong_configuration_starts_nothing(new_machine: Callable[..., Machine]) -> None:
    machine = new_machine()
    machine.configure(2, http={"port": machine.kafka_port + 1})
    machine.spawn()
    assert machine.wait(TIMEOUT_S) == 2
    assert "http.port: is" in machine.log_text()
    assert not machine.data_dir.exists()
