import base64
from pathlib import Path

import pytest

from streamlog.errors import ConfigError
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.encryption.key_source import key_ring, parsed_sources

KEY = bytes(range(32))
TEXT = base64.b64encode(KEY).decode()


def opens(sources: dict[str, str]) -> bool:
    """What is wrapped by KEY is opened by the one that they have."""
    (name,) = sources
    data_key, wrapped = KeyRing({name: KEY}, name).new_data_key()
    return key_ring(sources, name).unwrapped(wrapped, "x") == data_key


@pytest.mark.parametrize("text", [TEXT, TEXT + "\n", KEY.hex(), f"  {KEY.hex().upper()}\n"])
def test_a_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a key"
    file.write_text(text)
    assert opens({"k": f"file:{file}"})


def test_an_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", TEXT)
    assert opens({"k": "env:SOME_KEY"})


def test_a_command(tmp_path: Path) -> None:
    file = tmp_path / "a key"
    file.write_text(TEXT)
    assert opens({"k": f"command:cat '{file}'"})


def test_all_ways_are_to_the_same_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text(KEY.hex())
    monkeypatch.setenv("SOME_KEY", TEXT)
    _, wrapped = key_ring({"k": "env:SOME_KEY"}, "k").new_data_key()
    for source in (f"file:{tmp_path}/key", f"command:cat {tmp_path}/key"):
        key_ring({"k": source}, "k").unwrapped(wrapped, "x")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("", "does not say where"),
        ("file:", "does not say where"),
        ("vault:x", "does not say where"),
        (TEXT, "does not say where"),
        ("file:/nowhere/at/all", "cannot be read: No such file"),
        ("env:NO_SUCH_VARIABLE", "is not set"),
        ("command:/nowhere/at/all it", "cannot be run: No such file"),
        ("command:'", "cannot be run"),
        ("command:false", "has failed with 1"),
        ("command:echo topsecret", "what its command has is no key"),
        ("command:true", "what its command has is no key"),
    ],
)
def test_what_is_no_key(source: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as raised:
        key_ring({"k": source}, "k")
    assert raised.value.key == "encryption.keys.k"
    assert TEXT not in str(raised.value)
    assert "topsecret" not in str(raised.value)


def test_a_key_of_the_wrong_length_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(base64.b64encode(KEY[:16]).decode())
    with pytest.raises(ConfigError) as raised:
        key_ring({"k": f"file:{tmp_path}/key"}, "k")
    assert base64.b64encode(KEY[:16]).decode() not in str(raised.value)


def test_names_and_sources() -> None:
    assert parsed_sources(["a=file:/x=y", "b=env:B"]) == {"a": "file:/x=y", "b": "env:B"}
    for text in ("file:/x", "=file:/x", "a b=file:/x", "/=x"):
        with pytest.raises(ConfigError):
            parsed_sources([text])
