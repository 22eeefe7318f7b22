"""``streamlog doctor`` beside real nodes and nats-servers, well and unwell."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.in_process import streamlog
from tests.secured_nats import ConfiguredNats
from tools.nodes.ports import free_port
from tools.nodes.server_process import program

PERMISSIONS = Path(__file__).parents[2] / "config" / "nats-permissions.conf"
SECRET = "s1-very-secret"


def doctor(config: Path, *options: str) -> tuple[int, dict[str, str], str]:
    """Its exit code, what it said of each severity, and all of its output."""
    words = ["doctor", "--config", str(config), "--timeout", "2", "--json", *options]
    done = streamlog(words)
    assert done.stderr == b"", done.stderr
    findings = json.loads(done.stdout)["findings"]
    said: dict[str, str] = {}
    for it in findings:
        line = f"{it['area']}: {it['what']} -> {it['remedy']}\n"
        said[it["severity"]] = said.get(it["severity"], "") + line
    return done.returncode, said, done.stdout.decode()


@pytest.fixture
def strict_nats(tmp_path: Path) -> Iterator[Any]:
    """Makes a nats-server with our permissions, without the line that begins so."""
    servers: list[ConfiguredNats] = []

    def start(without: str = "") -> ConfiguredNats:
        text = PERMISSIONS.read_text().replace("$STREAMLOG_PASSWORD", SECRET)
        lines = text.replace("$APP_PASSWORD", "a1").splitlines()
        kept = [it for it in lines if not it.startswith("listen") and
                not (without and it.strip().startswith(without))]  # fmt: skip
        servers.append(ConfiguredNats(tmp_path, "\n".join(kept)))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


def config_file(folder: Path, nats: str, **sections: str) -> Path:
    path = folder / "node.toml"
    path.write_text(
        f'[node]\ndata_dir = "{folder / "data"}"\n'
        f'[nats]\nservers = ["{nats}"]\nuser = "streamlog"\npassword = "{SECRET}"\n'
        f"[kafka]\nport = {free_port()}\n[http]\nport = {free_port()}\n"
        + "".join(f"[{name}]\n{text}\n" for name, text in sections.items())
    )
    path.chmod(0o600)
    return path


def test_a_running_node_is_well(trio: Any) -> None:
    config = Path(trio.data_dir) / "node-1" / "node.toml"
    https = [it["http"].removeprefix("http://") for it in trio.addresses["nodes"]]
    code, said, _ = doctor(config, *(word for it in https for word in ("--http", it)))
    assert code == 0, said
    # Slowly or not: the machine has other work, too.
    assert sum(it.count("is reached in") for it in said.values()) == 3
    assert "3 of the 3 nodes of cluster dev are reached, this one at" in said["ok"]
    assert said["ok"].count("the clock of node at") == 3
    assert "nats-server" in said["ok"] and "fdatasync takes" in said["ok"]
    assert "cannot read by JetStream consumers" in said["note"], (
        "docs/consumers.md says how they can"
    )


def test_what_nats_does_not_permit_is_named(tmp_path: Path, strict_nats: Any) -> None:
    server = strict_nats('"$JS.streamlog.API.>')
    code, said, output = doctor(config_file(tmp_path, server.url))
    assert code == 1
    assert "does not permit to subscribe to $JS.streamlog.API.>" in said["critical"]
    assert said["critical"].count("permit") == 1
    assert SECRET not in output


def test_smallest_permissions_are_enough(tmp_path: Path, strict_nats: Any) -> None:
    config = config_file(tmp_path, strict_nats().url)
    code, said, output = doctor(config)
    assert (code, said.get("critical")) == (0, None)
    assert "no node answers" in said["warning"]
    assert doctor(config, "--strict")[0] == 1
    assert SECRET not in output
    assert not (tmp_path / "data").exists(), "it changes nothing"


def test_a_wrong_password_and_a_server_that_is_away(tmp_path: Path, strict_nats: Any) -> None:
    config = config_file(tmp_path, strict_nats().url)
    config.write_text(config.read_text().replace(SECRET, "wrong-s3cret"))
    config.chmod(0o644)
    code, said, output = doctor(config)
    assert code == 1
    assert "authorization" in said["critical"].lower()
    assert "others may read" in said["warning"]
    assert "wrong-s3cret" not in output
    config.write_text(config.read_text().replace("nats://", "nats://127.0.0.1:1,nats://", 1))
    code, said, _ = doctor(config_file(tmp_path, f"nats://127.0.0.1:{free_port()}"))
    assert (code, "see whether nats-server runs there" in said["critical"]) == (1, True)


def test_a_payload_that_is_too_large_and_jetstream_in_the_way(
    tmp_path: Path, jetstream: Any
) -> None:
    config = tmp_path / "node.toml"
    config.write_text(
        f'[node]\ndata_dir = "{tmp_path}"\n[log]\nmessage_bytes_max = 5000000\n'
        f'[nats]\nservers = ["{jetstream.url}"]\ndefault_api_prefix = true\n'
    )
    _, said, _ = doctor(config)
    assert "has JetStream, and nats.default_api_prefix" in said["critical"]
    assert "log.message_bytes_max allows 5000000" in said["note"]


def test_a_configuration_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text('[nats]\npassword = 7\n[node]\ndata_dir = "x"\n')
    code, said, _ = doctor(config)
    assert (code, list(said)) == (1, ["critical"])
    assert "nats.password" in said["critical"]


def test_as_lines_for_eyes(tmp_path: Path, trio: Any) -> None:
    config = Path(trio.data_dir) / "node-1" / "node.toml"
    command = [program("streamlog"), "doctor", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0
    assert any(line.startswith("ok ") for line in done.stdout.splitlines())
