"""Rules out of a file: what it stands for, and what is wrong with it in words."""

import json
from pathlib import Path

import pytest

from streamlog.acl.rules import CLUSTER_NAME
from streamlog.authz import rule_file
from streamlog.authz.rule_file import read_rules
from streamlog.errors import ConfigError

GOOD = """
[[allow]]
principals = ["User:alice", "User:bob"]
hosts = ["10.0.0.7"]
operations = ["read", "describe_configs"]
topics = ["orders", "metrics-*", "*"]
groups = ["alice-*"]

[[deny]]
principals = ["User:*"]
operations = ["all"]
cluster = true
"""


def test_an_entry_stands_for_each_combination(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(GOOD)
    rules = {str(rule) for rule in read_rules(path)}
    assert len(rules) == 2 * (2 * 3 + 1) + 1  # groups have no describe_configs
    assert "allow User:alice from 10.0.0.7 to read topic metrics-*" in rules
    assert "allow User:bob from 10.0.0.7 to read group alice-*" in rules
    assert f"deny User:* from * to all cluster {CLUSTER_NAME}" in rules


def test_json_is_of_the_same_shape(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    entry = {"principals": ["User:a"], "operations": ["read"], "topics": ["x"]}
    path.write_text(json.dumps({"allow": [entry]}))
    assert [str(it) for it in read_rules(path)] == ["allow User:a from * to read topic x"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("allow = 1", "allow"),
        ("[[alow]]\n", "alow"),
        ("[[allow", "is not TOML"),
        ('[[allow]]\nprincipals = ["User:a"]\noperations = ["read"]', "names no resource"),
        ('[[allow]]\nprincipals = ["a"]\noperations = ["read"]\ntopics = ["x"]', "User:alice"),
        ('[[allow]]\nprincipals = []\noperations = ["read"]\ntopics = ["x"]', "principals"),
        ('[[allow]]\nprincipals = ["User:a"]\noperations = ["go"]\ntopics = ["x"]', "operations"),
        ('[[deny]]\nprincipals = ["User:a"]\noperations = ["write"]\ngroups = ["x"]', "is no op"),
        ('[[allow]]\nprincipals = ["User:a"]\nhosts = ["h"]\noperations = ["read"]\ntopics = ["x"]',
         "an address"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=why) as caught:
        read_rules(path)
    assert caught.value.key == "authorization.rules_file"


def test_files_that_are_none_and_too_many_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_rules(tmp_path / "none.toml")
    path = tmp_path / "rules.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="is not JSON"):
        read_rules(path)
    path = tmp_path / "rules.toml"
    path.write_text(GOOD)
    monkeypatch.setattr(rule_file, "RULES_MAX", 3)
    with pytest.raises(ConfigError, match="more than 3"):
        read_rules(path)
    monkeypatch.setattr(rule_file, "BYTES_MAX", 3)
    with pytest.raises(ConfigError, match="larger than 3"):
        read_rules(path)
