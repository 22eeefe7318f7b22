"""The option that says where the keys are."""

import pickle
from pathlib import Path

import pytest

from pyspark_streamlog.options.read_options import SourceOptions
from streamlog.arrow.files.file_system import LocalFiles
from streamlog.arrow.options.encryption_keys import Openers
from streamlog.errors import ConfigError
from streamlog.log.encryption.key_ring import KeyRing

SECRET = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U="


def parsed(text: str, **more: str) -> tuple[tuple[str, str], ...]:
    given = {"path": "/data", "encryption.keys": text, **more}
    return SourceOptions.parse(given).keys.sources


def test_without_the_option_there_are_no_keys() -> None:
    assert SourceOptions.parse({"path": "/data"}).keys.sources == ()


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        ("a=file:/k", (("a", "file:/k"),)),
        ("a=file:/k, 2026-11=env:K", (("a", "file:/k"), ("2026-11", "env:K"))),
        ("a=command:get a,b=c\nb=env:K\n", (("a", "command:get a,b=c"), ("b", "env:K"))),
    ],
)
def test_keys_are_named_with_their_sources(text: str, sources: tuple[tuple[str, str], ...]) -> None:
    assert parsed(text) == sources


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a", "number 1 does not say where a key is; write NAME=file:PATH, env:"),
        (SECRET, "number 1 does not say where a key is"),
        (f"a=env:K,b={SECRET}", "number 2 does not say where a key is"),
        (f"a=file:/k\n{SECRET}", "number 2 does not say where a key is"),
        ("a=file:", "number 1 does not say where a key is"),
        ("a b=file:/k", "'a b' names no key"),
        ("a=file:/k,a=env:K", "a is given twice"),
    ],
)
def test_what_names_no_source_is_refused_and_not_repeated(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=rf"^encryption\.keys: {problem}") as caught:
        parsed(text)
    assert "2Vjcm" not in str(caught.value)


def test_nodes_decrypt_for_who_reads_from_servers() -> None:
    with pytest.raises(ConfigError, match=r"^encryption\.keys: it belongs to reading by path"):
        SourceOptions.parse({"servers": "a:1", "encryption.keys": "a=env:K"})


def test_options_travel_without_keys_and_keys_are_read_when_one_is_needed(
    a_key: KeyRing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = SourceOptions.parse({"path": "/data", "encryption.keys": "k1=env:A_KEY,k2=env:NONE"})
    openers = Openers(pickle.loads(pickle.dumps(options)).keys)
    with pytest.raises(ConfigError, match=r"^encryption\.keys\.k2: .* NONE is not set"):
        openers.of(LocalFiles(), f"{tmp_path}/{0:020d}.log")
    monkeypatch.setenv("NONE", bytes(32).hex())
    openers.of(LocalFiles(), f"{tmp_path}/{0:020d}.log")
    monkeypatch.delenv("NONE")
    openers.of(LocalFiles(), f"{tmp_path}/{0:020d}.log")  # they are known by now
