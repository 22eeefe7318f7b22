"""What is said about a node's settings is the fields' own, and an annotated file reads as what it says."""

import re
import tomllib
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter

from streamlog.config import Settings
from streamlog.config.description import (
    NodeSetting,
    annotated_file,
    described_sections,
    toml_value,
)

ALL = {(section.name, it.key): it for section in described_sections() for it in section.settings}


def setting(section: str, key: str) -> NodeSetting:
    return ALL[section, key]


def test_every_setting_has_a_meaning_and_a_default_or_an_example() -> None:
    for it in ALL.values():
        assert it.meaning and it.meaning.endswith("."), it.key
        assert "``" not in it.meaning
        assert it.default is not None or it.example is not None, it.key


def test_an_example_is_a_value_of_its_setting() -> None:
    for (section, key), it in ALL.items():
        if it.example is not None:
            section_class: Any = Settings.model_fields[section].annotation
            field = section_class.model_fields[key]
            kind: Any = Annotated[(field.annotation, None, *field.metadata)]
            TypeAdapter(kind).validate_python(it.example)


@pytest.mark.parametrize(
    ("section", "key", "values", "default"),
    [
        ("kafka", "connections_max", "1 to 1_000_000", "10_000"),
        ("kafka", "idle_timeout_ms", "1s to 1d", "600_000 (10m)"),
        ("log", "segment_bytes", "4KiB to 2_147_483_647", "268_435_456 (256MiB)"),
        ("log", "sync", "commit, interval, os", '"commit"'),
        ("tracing", "sample_ratio", "0 to 1", "0.0"),
        ("http", "tls_client_auth", "none, optional, required", ""),
        ("activity", "retention_ms", "-1 to 36500d", "2_592_000_000 (30d)"),
        ("node", "data_dir", "", ""),
    ],
)
def test_ranges_and_defaults_are_those_of_the_field(
    section: str, key: str, values: str, default: str
) -> None:
    assert (setting(section, key).values, setting(section, key).default_text) == (values, default)


@pytest.mark.parametrize(
    "value",
    [True, 7, 10_000, -1, 0.5, "a", 'quoted "\\ \u00e4\n', ("a", "b,c"), (), {}, {"a.b": "c d"}],
)
def test_a_value_is_read_as_it_was_written(value: object) -> None:
    read = tomllib.loads(f"key = {toml_value(value)}")["key"]
    assert read == (list(value) if isinstance(value, tuple) else value)


def test_what_is_chosen_is_set_and_all_else_is_a_comment() -> None:
    text = annotated_file({("kafka", "port"): 9093, ("cluster", "voters"): ["1@a:1"]}, "# head\n")
    content = tomllib.loads(text)
    assert set(content) == set(Settings.model_fields)
    assert {name: it for name, it in content.items() if it} == {
        "kafka": {"port": 9093},
        "cluster": {"voters": ["1@a:1"]},
    }
    every = tomllib.loads(re.sub(r"^#(?=\w+ = )", "", text, flags=re.MULTILINE))
    assert {(name, key) for name, table in every.items() for key in table} == set(ALL)
