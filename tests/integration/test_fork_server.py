"""A forked node is a process like one that was executed."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tools.nodes.fork_server import ForkServer, fork_server
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import NatsServer, StreamlogProcess, wait_until

ENDS_WITHOUT_CHILDREN = """
import sys
from pathlib import Path
from tools.nodes.fork_server import ForkServer
server = ForkServer()
child = server.start(["serve", "--config", sys.argv[1]], Path(sys.argv[2]))
print(child.pid, flush=True)
sys.stdin.read()
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_output_and_exit_code_are_the_commands(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert fork_server().start(["--version"], log).wait(30) == 0
    assert fork_server().start(["serve", "--config", "no such file"], log).wait(30) == 2
    assert fork_server().start(["no-such-command"], log).wait(30) == 2
    said = log.read_text()
    assert said.startswith("streamlog ")
    assert "no such file" in said
    assert "no-such-command" in said


def test_the_environment_is_that_of_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("STREAMLOG_NODE__ID", "nonsense")
    assert fork_server().start(["serve"], log).wait(30) == 2
    assert "STREAMLOG_NODE__ID" in log.read_text()


def test_a_command_is_run_to_its_end() -> None:
    done = fork_server().run(["--version"], {"LANG": "C"}, timeout_s=30)
    assert (done.returncode, done.stdout[:10], done.stderr) == (0, "streamlog ", "")
    done = fork_server().run(["no-such-command"], {}, timeout_s=30)
    assert (done.returncode, done.stdout) == (2, "") and "no-such-command" in done.stderr
    with socket.create_server(("127.0.0.1", 0)) as silent:
        waits = ["stream", "ls", "--bootstrap-server", f"127.0.0.1:{silent.getsockname()[1]}"]
        with pytest.raises(subprocess.TimeoutExpired):
            fork_server().run(waits, {}, timeout_s=0.5)


def test_a_node_can_be_killed_as_soon_as_it_is_started(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    node = NodeProcess.alone(tmp_path / "node", nats_server.url)
    for _ in range(20):
        node.spawn()
        assert node.log.exists()
        node.kill()
        assert not node.is_running()


def test_a_signal_is_an_exit_code(nats_server: NatsServer, tmp_path: Path) -> None:
    node = NodeProcess.alone(tmp_path / "node", nats_server.url)
    assert StreamlogProcess.is_forked
    node.start()
    assert node.is_running()
    assert os.getpgid(node.pid) == node.pid
    with pytest.raises(subprocess.TimeoutExpired):
        node.wait(0.01)
    os.kill(node.pid, signal.SIGKILL)
    assert node.wait() == -signal.SIGKILL
    assert not node.is_running()
    node.start()
    assert node.stop() == 0


def test_children_end_with_the_process_that_asked_for_them(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    node = NodeProcess.alone(tmp_path / "node", nats_server.url)
    command = [sys.executable, "-c", ENDS_WITHOUT_CHILDREN, str(node.config), str(node.log)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        wait_until(lambda: node.http("/readyz")[0] == 200, "the node is ready")
        starter.kill()
    wait_until(lambda: not is_running(pid), "it ends")


def test_a_fork_server_that_stops_ends_its_children(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    node = NodeProcess.alone(tmp_path / "node", nats_server.url)
    server = ForkServer()
    child = server.start(["serve", "--config", str(node.config)], node.log)
    wait_until(lambda: node.http("/readyz")[0] == 200, "the node is ready")
    server.stop()
    wait_until(lambda: not is_running(child.pid), "it ends")
    assert child.wait(10) < 0
