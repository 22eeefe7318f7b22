"""Contexts: kept for their user alone, below options and variables, above defaults."""

import json
import stat
from pathlib import Path

import pytest

from streamlog.cli.options import contexts, running_dev
from streamlog.errors import ConfigError
from tests.in_process import streamlog


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def done(text: str, code: int = 0, **variables: str) -> str:
    ended = streamlog(text.split(), environment=variables)
    assert ended.returncode == code, ended
    return (ended.stdout or ended.stderr).decode()


def test_a_context_is_added_used_shown_and_removed(home: Path) -> None:
    done("context add prod --bootstrap-server 127.0.0.1:1 --user ann --password-file pw --use")
    done("context add test --bootstrap-server 127.0.0.1:2")
    path = home / "config" / "streamlog" / "contexts" / "prod.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    shown = json.loads(done("context show --json"))
    assert shown["user"] == "ann" and Path(shown["password_file"]).is_absolute()
    assert "already" in done("context add prod", code=2)
    listed = json.loads(done("context ls --json"))
    assert [(it["name"], it["current"]) for it in listed] == [("prod", True), ("test", False)]
    done("context use test")
    assert contexts.current() == "test"
    done("context rm test --yes")
    assert contexts.names() == ["prod"] and contexts.current() is None
    assert "there is no context 'test'" in done("context use test", code=2)
    assert "'../x' is no name of a context" in done("context show ../x", code=2)


@pytest.mark.parametrize(
    ("words", "variables", "asked"),
    [
        ("", {}, 1),
        ("--context other", {}, 2),
        ("", {"STREAMLOG_CONTEXT": "other"}, 2),
        ("--context used", {"STREAMLOG_CONTEXT": "other"}, 1),
        ("", {"STREAMLOG_CLIENT_BOOTSTRAP_SERVER": "127.0.0.1:3"}, 3),
        ("--bootstrap-server 127.0.0.1:4", {"STREAMLOG_CLIENT_BOOTSTRAP_SERVER": "127.0.0.1:3"}, 4),
        ("--bootstrap-server 127.0.0.1:4 --context other", {}, 4),
    ],
)
def test_an_option_wins_over_a_variable_and_that_over_the_context(
    words: str, variables: dict[str, str], asked: int
) -> None:
    for number, name in enumerate(("used", "other"), 1):
        contexts.write(name, {"bootstrap_server": f"127.0.0.1:{number}"})
    contexts.use("used")
    running_dev.write("127.0.0.1:9")
    assert f"127.0.0.1:{asked}:" in done(f"stream ls {words}", code=1, **variables)


def test_a_login_on_the_command_line_replaces_all_of_the_contexts(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    contexts.write(
        "used", {"bootstrap_server": "127.0.0.1:1", "user": "ann", "password_file": "/absent"}
    )
    contexts.use("used")
    assert "127.0.0.1:1:" in done(f"stream ls --token-file {tmp_path}/token", code=1)


def test_nats_is_where_the_context_says() -> None:
    contexts.write("used", {"nats_server": "nats://127.0.0.1:1"})
    assert "nats://127.0.0.1:1" in done("publish a x --context used", code=1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("password = 'x'", "password: there is no such key"),
        ("tls = 'yes'", "tls: 'yes' is not of its type"),
        ("user =", "Invalid value"),
    ],
)
def test_a_wrong_file_is_named(text: str, problem: str) -> None:
    path = contexts.write("wrong", {})
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem) as refused:
        contexts.read("wrong")
    assert str(path) in str(refused.value)
