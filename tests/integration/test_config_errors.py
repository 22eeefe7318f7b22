"""A wrong configuration: one line on standard error, exit code 2, no traceback."""

import io
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.in_process import streamlog

TIMEOUT_S = 30.0


@pytest.fixture(autouse=True)
def logs_as_before(output: io.StringIO) -> None:
    """A node that starts inside of this process configures its logs."""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = streamlog(arguments, environment=environment)
    out, err = done.stdout.decode(), done.stderr.decode()
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def run_as_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "streamlog", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The one line."""
    assert done.returncode == 2, done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(said) == 1, done.stderr
    assert said[0].startswith("streamlog: ")
    assert "Traceback" not in done.stderr
    return said[0]


def write(tmp_path: Path, text: str = "", **node: object) -> str:
    path = tmp_path / "node.toml"
    data_dir = node.get("data_dir", tmp_path / "data")
    settled = f'[node]\ndata_dir = "{data_dir}"\n'
    path.write_text(settled + (text or "[kafka]\nport = 0\n[http]\nport = 0\n"))
    return str(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[kafka]\nprot = 1\n", "kafka.prot: no such key; did you mean kafka.port?"),
        ("[kafka]\nport = 'x'\n", "kafka.port: 'x' is wrong"),
        ("[log]\nsync = 'never'\n", "log.sync: 'never' is wrong"),
        ("[log\n", "is not TOML"),
    ],
)
def test_a_wrong_file(tmp_path: Path, text: str, said: str) -> None:
    assert said in complaint(run("serve", "--config", write(tmp_path, text)))


def test_a_wrong_file_ends_a_process(tmp_path: Path) -> None:
    done = run_as_process("serve", "--config", write(tmp_path, "[kafka]\nprot = 1\n"))
    assert "kafka.prot: no such key; did you mean kafka.port?" in complaint(done)


def test_a_wrong_variable(tmp_path: Path) -> None:
    done = run("serve", "--config", write(tmp_path), STREAMLOG_LOG__SYNK="os")
    assert "STREAMLOG_LOG__SYNK: no such key" in complaint(done)


def test_no_file(tmp_path: Path) -> None:
    assert "absent.toml: cannot be read" in complaint(run("serve", "--config", "absent.toml"))


@pytest.mark.parametrize("section", ["kafka", "http"])
def test_a_port_in_use(tmp_path: Path, section: str) -> None:
    other = {"kafka": "http", "http": "kafka"}[section]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = f"[{section}]\nport = {port}\n[{other}]\nport = 0\n"
        line = complaint(run("serve", "--config", write(tmp_path, text)))
    assert f"{section}.port: " in line
    assert str(port) in line


def test_a_host_that_is_not_ours(tmp_path: Path) -> None:
    text = "[kafka]\nhost = '203.0.113.1'\nport = 0\n[http]\nport = 0\n"
    assert "kafka." in complaint(run("serve", "--config", write(tmp_path, text)))


def test_a_secret_that_is_too_short(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    text = f"[kafka]\nport = 0\n[http]\nport = 0\ntoken_file = '{secret}'\n"
    line = complaint(run("serve", "--config", write(tmp_path, text)))
    assert "http.token_file: " in line
    assert "no token of 16 or more characters" in line


@pytest.mark.parametrize(
    "text",
    [
        "[kafka]\nhost = '0.0.0.0'\n",
        "[security]\npermissive = true\n",
        "[nats]\nservers = ['http://x']\n",
        "[nats]\nnkey_seed = 'absent'\n",
        "[tls]\ncert = 'absent'\nkey = 'absent'\n",
        "[sasl]\nmechanisms = ['PLAIN']\nbootstrap_file = 'absent'\n",
        "[sasl]\nmechanisms = ['PLAIN']\nprincipal_mapping_rules = ''\n",
        "[cluster]\nid = 'c'\nvoters = ['nonsense']\n",
        "[http]\nbasic_auth = true\n",
        "[http]\ntoken_file = 'absent'\n",
        "[authorization]\nrules_file = 'absent'\n",
        "[encryption]\nactive_key = 'a'\nkeys.a = 'file:absent'\n",
    ],
)
def test_a_check_finds_what_a_start_refuses(tmp_path: Path, text: str) -> None:
    config = write(tmp_path, text)
    ports = {"STREAMLOG_KAFKA__PORT": "0", "STREAMLOG_HTTP__PORT": "0"}
    line = complaint(run("serve", "--config", config, **ports)).removeprefix("streamlog: ")
    found = json.loads(run("config", "check", config, "--json").stdout)["findings"]
    assert line.strip() in [f"{it['what']}; {it['remedy']}" for it in found]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    config = write(tmp_path, data_dir="/proc/streamlog")
    assert "node.data_dir: /proc/streamlog" in complaint(run("serve", "--config", config))


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = write(tmp_path, data_dir=tmp_path / "file")
    assert "node.data_dir: " in complaint(run("serve", "--config", config))


def test_a_folder_in_use(new_node: Callable[..., Any], tmp_path: Path) -> None:
    node = new_node()
    node.start()
    line = complaint(run("serve", "--config", write(tmp_path, data_dir=node.data_dir)))
    assert f"node.data_dir: {node.data_dir} is in use" in line
    assert node.http("/readyz")[0] == 200


def test_a_folder_of_another_node(new_node: Callable[..., Any], tmp_path: Path) -> None:
    node = new_node()
    node.start()
    assert node.stop() == 0
    config = write(tmp_path, data_dir=node.data_dir)
    assert "node.id: " in complaint(run("serve", "--config", config, STREAMLOG_NODE__ID="2"))


def test_a_nats_address_that_is_none(tmp_path: Path) -> None:
    text = "[kafka]\nport = 0\n[http]\nport = 0\n[nats]\nservers = ['http://x']\n"
    assert "nats.servers" in complaint(run("serve", "--config", write(tmp_path, text)))


@pytest.mark.parametrize("option", ["--nats-port", "--kafka-port", "--http-port"])
def test_dev_with_a_port_in_use(tmp_path: Path, option: str) -> None:
    ports = dict.fromkeys(("--nats-port", "--kafka-port", "--http-port"), "0")
    with socket.create_server(("127.0.0.1", 0)) as server:
        ports[option] = str(server.getsockname()[1])
        arguments = [word for pair in ports.items() for word in pair]
        line = complaint(run("dev", "--data-dir", str(tmp_path / "data"), *arguments))
    assert f"{option}: port {ports[option]} is in use" in line


def test_dev_in_a_folder_that_cannot_be_written() -> None:
    assert "--data-dir: /proc/x cannot be written" in complaint(run("dev", "--data-dir", "/proc/x"))


def test_dev_in_a_folder_in_use(dev: Any) -> None:
    assert "is in use" in complaint(run("dev", "--data-dir", str(dev.data_dir)))
    assert dev.ready_file.exists()


def test_dev_passes_on_what_a_node_complains_about(tmp_path: Path) -> None:
    ports = ("--nats-port", "0", "--kafka-port", "0", "--http-port", "0")
    done = run("dev", "--data-dir", str(tmp_path), *ports, STREAMLOG_LOG__SYNC="never")
    assert "node-1: STREAMLOG_LOG__SYNC: 'never' is wrong" in complaint(done)
    assert not (tmp_path / "dev.json").exists()
