"""``streamlog config``: what ``init`` writes is a good file, and ``check`` reports every mistake in one."""

import json
from pathlib import Path
from typing import Any

import pytest

from streamlog.config import Settings, load_settings
from streamlog.config.description import described_sections
from tests.in_process import streamlog

ALL = (
    "--data-dir", "/var/lib/streamlog", "--id", "2", "--kafka", "0.0.0.0:9093",
    "--advertised", "node-2:9094", "--http", "[::1]:80", "--nats-server", "nats://a:1",
    "--nats-server", "tls://b:2", "--cluster-id", "orders", "--voter", "1@node-1:9092",
    "--voter", "2@node-2:9094", "--voter", "3@node-3:9092",
)  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str, **environment: str) -> tuple[int, str, str]:
    done = streamlog(["config", *words], environment=environment)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def findings(text: str, *options: str) -> tuple[int, list[dict[str, Any]]]:
    Path("node.toml").write_text(text)
    code, out, _ = run("check", "node.toml", "--json", *options)
    said = json.loads(out)
    assert said["well"] == (code == 0)
    return code, said["findings"]


# init


def test_a_file_with_nothing_chosen_has_the_defaults(folder: Path) -> None:
    code, out, _ = run("init")
    assert code == 0
    assert "node.toml is written" in out
    assert "streamlog serve --config node.toml" in out and "Correct this first" not in out
    assert load_settings(folder / "node.toml") == Settings(node={"data_dir": "data"})
    assert run("check", "node.toml")[0] == 0


def test_what_is_chosen_is_set_and_what_is_left_to_do_is_told(folder: Path) -> None:
    code, out, _ = run("init", "two.toml", *ALL)
    assert code == 0
    voters = ("1@node-1:9092", "2@node-2:9094", "3@node-3:9092")
    assert load_settings(folder / "two.toml") == Settings(
        node={"id": 2, "data_dir": "/var/lib/streamlog"},
        kafka={"host": "0.0.0.0", "port": 9093, "advertised_host": "node-2",
               "advertised_port": 9094},
        http={"host": "::1", "port": 80},
        nats={"servers": ("nats://a:1", "tls://b:2")},
        cluster={"id": "orders", "voters": voters},
    )  # fmt: skip
    assert "Correct this first:\nCRITICAL configuration: kafka.host: 0.0.0.0 can be reached" in out
    assert "on 1@node-1:9092, 3@node-3:9092" in out


def test_every_setting_is_in_the_file_with_its_meaning() -> None:
    _, text, _ = run("init", "-")
    for section in described_sections():
        assert f"\n[{section.name}]\n" in text
        for setting in section.settings:
            assert setting.meaning.endswith("."), setting
            assert f"{setting.key} = " in text
    assert all(len(line) <= 100 or line.startswith("# Example") for line in text.splitlines())


def test_a_file_is_overwritten_by_force_alone(folder: Path) -> None:
    path = folder / "node.toml"
    path.write_text("precious")
    code, _, err = run("init")
    assert (code, path.read_text()) == (2, "precious")
    assert "node.toml: is there already; name another file, or --force" in err
    assert run("init", "--force")[0] == 0
    assert load_settings(path).node.id == 1
    assert [it.name for it in folder.iterdir()] == ["node.toml"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--kafka", "9092"), "--kafka: '9092' is no address; write host:port"),
        (("--kafka", "a:70000"), "kafka.port: 70000 is wrong"),
        (("--http", "a:b"), "--http: 'a:b' is no address"),
        (("--voter", "node-1:9092"), "cluster.voters: 'node-1:9092' is not id@host:port"),
        (("--nats-server", "nats://u:a", "--nats-server", "s3cret@host"), "nats.servers"),
        (("nowhere/node.toml",), "nowhere/node.toml: cannot be written"),
    ],
)
def test_a_wrong_choice_writes_nothing(folder: Path, words: tuple[str, ...], said: str) -> None:
    code, out, err = run("init", *words)
    assert (code, out, list(folder.iterdir())) == (2, "", [])
    assert said in err and "s3cret" not in err


# check


def test_every_kind_of_mistake_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMLOG_LOGG__LEVEL", "info")
    code, found = findings("""
        [kafka]
        prot = 1
        host = "0.0.0.0"
        [log]
        sync = "never"
        segment_bytes = 3
        [nats]
        servers = ["http://a:1"]
        [http]
        token_file = "absent-tokens"
        [sasl]
        mechanisms = ["SCRAM-SHA-512", "OAUTHBEARER"]
        node_user = "node"
        principal_mapping_rules = ""
        [authorization]
        rules_file = "absent-rules"
        [tls]
        cert = "c.pem"
        [encryption]
        keys = { a = "file:absent-key", b = "nothing" }
        active_key = "a"
        [cluster]
        voters = ["1@a:1", "1@b:1"]
        [ingest]
        in_flight_bytes_max = 65536
    """)  # fmt: skip
    assert code == 1
    said = {(it["severity"], it["what"].partition(" is ")[0]): it for it in found}
    text = "\n".join(f"{it['what']} -> {it['remedy']}" for it in found)
    for part in (
        "node.data_dir: is missing",
        "kafka.prot: no such key -> did you mean kafka.port?",
        "STREAMLOG_LOGG__LEVEL: no such setting -> did you mean STREAMLOG_LOG",
        "log.sync: 'never' is wrong",
        "log.segment_bytes: 3 is wrong (Input should be greater than or equal to 4096)",
        "sasl: node_user and node_password_file belong together",
        "sasl: OAUTHBEARER needs oauth_jwks_file, oauth_issuer and oauth_audience",
        "tls: cert and key are needed, or neither",
        "kafka.host: 0.0.0.0 can be reached from other machines",
        "kafka.host is '0.0.0.0' and there is no kafka.advertised_host",
        "nats.servers: 'http://a:1' is not supported",
        "http.token_file: absent-tokens has no token",
        "authorization.rules_file: absent-rules",
        "encryption.keys.a: absent-key cannot be read",
        "encryption.keys.b: does not say where the key is",
        "cluster.voters: node 1 is there twice",
        "ingest.in_flight_bytes_max (65536) is less than log.message_bytes_max",
    ):
        assert part in text, part
    assert len(said) == len(found), "each once"


def test_nothing_is_inferred_from_a_setting_that_is_wrong() -> None:
    """A key that is misspelt is not missing, too; a size that is wrong is not compared."""
    _, found = findings("""
        [node]
        data_dir = "d"
        [tls]
        kee = "key.pem"
        cert = "cert.pem"
        [log]
        message_bytes_max = -5
        segment_bytes = 4096
    """)  # fmt: skip
    assert [it["what"].partition(" ")[0] for it in found] == ["log.message_bytes_max:", "tls.kee:"]


def test_warnings_fail_where_they_shall() -> None:
    text = '[node]\ndata_dir = "d"\n[log]\nsegment_bytes = 65536\n'
    code, [found] = findings(text)
    assert (code, found["severity"]) == (0, "warning")
    assert findings(text, "--strict")[0] == 1


def test_a_good_file_is_well_and_what_its_keys_are_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "was-run"
    text = (
        f'[node]\ndata_dir = "d"\n[encryption]\nactive_key = "a"\nkeys.a = "command:touch {mark}"\n'
    )
    code, [found] = findings(text)
    assert (code, found["severity"]) == (0, "ok")
    assert not mark.exists()
    assert not (tmp_path / "d").exists()


def test_the_environment_alone_is_checked_without_a_file() -> None:
    assert run("check", STREAMLOG_NODE__DATA_DIR="d")[0] == 0
    code, out, _ = run("check", STREAMLOG_NODE__DATA_DIR="d", STREAMLOG_KAFKA__PORT="x")
    assert code == 1
    assert "STREAMLOG_KAFKA__PORT: 'x' is wrong" in out


@pytest.mark.parametrize("text", ["[node", None])
def test_a_file_that_cannot_be_read_is_one_finding(text: str | None) -> None:
    if text is not None:
        Path("node.toml").write_text(text)
    code, out, _ = run("check", "node.toml")
    assert code == 1
    assert out.startswith("CRITICAL configuration: node.toml: ")
    assert "-> " in out and len(out.splitlines()) == 2


def test_no_secret_is_shown() -> None:
    _, found = findings("""
        [node]
        data_dir = "d"
        [nats]
        servers = ["nats://u:s3cret@a:1", "nats://u:s3cret@b:0"]
        password = 5
    """)  # fmt: skip
    assert found and "s3cret" not in str(found)
