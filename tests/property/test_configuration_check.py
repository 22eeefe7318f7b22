"""Whatever a configuration file holds, its check ends with findings, of which each is about something in it."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamlog.cli.doctor.configuration import examine_file
from streamlog.condition import OK
from streamlog.config import Settings
from streamlog.config.description import NodeSetting, described_sections, toml_value

SETTINGS = [(section.name, it) for section in described_sections() for it in section.settings]
TEXTS = st.sampled_from(
    ["", "absent", "/", ".", "a\x00b", "0.0.0.0", "::", "1@a:1", "User:x",
     "file:absent", "env:ABSENT", "required", "PLAIN", "OAUTHBEARER", "\u00e4\ud7ff", "x" * 5000]
)  # fmt: skip
SCALARS = st.one_of(TEXTS, st.integers(-(2**63), 2**63 - 1), st.booleans(), st.floats(-10, 10))
ODD = st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(TEXTS, SCALARS, max_size=2))
SERVERS = st.sampled_from(["nats://a:1", "tls://u:s3cret@h:1", "u:s3cret@h:0", "x://u:s3cret@h"])
SELDOM = st.sampled_from([None] * 12 + ["key", "value"])


def value_of(setting: NodeSetting) -> st.SearchStrategy[Any]:
    """One that may be right."""
    kind, known = setting.type, [it for it in (setting.default, setting.example) if it is not None]
    if kind.kind is int and kind.low is not None and kind.high is not None:
        right: st.SearchStrategy[Any] = st.integers(int(kind.low), int(kind.high))
    elif setting.key == "servers":
        right = st.lists(SERVERS, max_size=3)
    elif kind.kind is Path:
        right = TEXTS
    elif kind.kind is bool:
        right = st.booleans()
    elif kind.choices and kind.kind is tuple:
        right = st.lists(st.sampled_from(kind.choices), unique=True)
    elif kind.choices:
        right = st.sampled_from(kind.choices)
    else:
        right = st.one_of(st.sampled_from(known), st.lists(TEXTS, max_size=3) | TEXTS)
    return right


@st.composite
def files(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = {"node": {"data_dir": "data"}}
    for section, setting in draw(st.lists(st.sampled_from(SETTINGS), min_size=2, max_size=12)):
        wrong = draw(SELDOM)
        key = setting.key[:-1] + "_" if wrong == "key" else setting.key
        value = draw(ODD if wrong == "value" else value_of(setting))
        tables.setdefault(section, {})[key] = value
    if draw(SELDOM):
        tables[draw(st.sampled_from(["nast", "x"]))] = {"a": 1}
    return tables


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(files())
@example({"node": {"data_dir": "x" * 5000, "id": 1}})
@example({"node": {"data_dir": "data", "id": 1}, "kafka": {"host": "."}})
@example({"node": {"data_dir": "data"}, "sasl": {"bootstrap_file": "a\x00b"}})
@example({"node": {"data_dir": "data"}, "encryption": {"keys": {"a": "file:\x00"}}})
def test_a_check_ends_with_findings(tables: dict[str, dict[str, Any]]) -> None:
    path = Path("node.toml")
    path.write_text(
        "".join(
            f"[{name}]\n" + "".join(f"{key} = {toml_value(it)}\n" for key, it in table.items())
            for name, table in tables.items()
        )
    )
    examined = examine_file(path)
    said = [it.what for it in examined.findings]
    assert said and len(said) == len(set(said))
    assert all(it.remedy for it in examined.findings if it.severity in ("critical", "warning"))
    assert "s3cret" not in str(examined.findings)
    unknown = {
        key
        for name, table in tables.items()
        for key in table
        if name not in Settings.model_fields or key.endswith("_")
    }
    assert (examined.settings is None) >= bool(unknown)
    if [it.severity for it in examined.findings] == [OK]:
        assert examined.settings is not None
    assert {it.name for it in Path().iterdir()} == {"node.toml"}, "it writes nothing"
