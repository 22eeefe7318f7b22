from pathlib import Path

import pytest

from streamlog.cli.options.keys import told_keys
from streamlog.errors import ConfigError
from streamlog.log.encryption.key_ring import KeyRing


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a node with the keys ``old`` and, now, ``new``."""
    for number, name in enumerate(("old", "new", "mine", "other")):
        (tmp_path / name).write_text(bytes([number] * 32).hex())
    path = tmp_path / "node.toml"
    path.write_text(
        f'[node]\ndata_dir = "{tmp_path}"\n[encryption]\nactive_key = "new"\n'
        f'[encryption.keys]\nold = "file:{tmp_path}/old"\nnew = "file:{tmp_path}/new"\n'
    )
    monkeypatch.chdir(tmp_path)
    return path


def test_without_any_there_are_none() -> None:
    keys = told_keys(None, None)
    assert (keys.names, keys.active) == ([], None)


def test_the_first_that_is_named_is_for_what_is_new(config: Path) -> None:
    keys = told_keys(["mine=file:mine", "other=file:other"], None)
    assert (keys.names, keys.active) == (["mine", "other"], "mine")


def test_the_keys_of_a_node(config: Path) -> None:
    keys = told_keys(None, config)
    assert (keys.names, keys.active) == (["new", "old"], "new")
    keys = told_keys(["mine=file:mine"], config)
    assert (keys.names, keys.active) == (["mine", "new", "old"], "mine")
    keys = told_keys(["mine=file:mine"], config, active_of_config=True)
    assert (keys.names, keys.active) == (["mine", "new", "old"], "new")


def test_a_key_that_is_named_wins_over_the_nodes_of_that_name(config: Path) -> None:
    sealed = KeyRing({"old": bytes([2] * 32)}, "old").wrapped(bytes(32))
    assert told_keys(["old=file:mine"], config).unwrapped(sealed, "x") == bytes(32)


@pytest.mark.parametrize("text", ["AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "a=b", "a"])
def test_what_names_no_source_is_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--key: number 1 does not say where") as caught:
        told_keys([text], None)
    assert "AAAA" not in str(caught.value)
