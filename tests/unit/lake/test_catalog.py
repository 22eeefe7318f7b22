"""What a catalog lacks is told with its remedy."""

import sys

import pytest

pytest.importorskip("pyiceberg", reason="the extra `lake` is not installed")

from streamlog.errors import ConfigError
from streamlog.lake.catalog import TableName


def test_a_missing_driver_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    name = TableName("lake.flights", "there", {"type": "sql", "uri": "postgresql+psycopg2://u@h/c"})
    with pytest.raises(ConfigError) as raised:
        name.open_catalog()
    assert "lacks a package" in str(raised.value)
    assert "pyiceberg[sql-postgres]" in str(raised.value)


def test_a_catalog_without_a_type_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TYPE", "URI"):
        monkeypatch.delenv(f"PYICEBERG_CATALOG__NOWHERE__{name}", raising=False)
    with pytest.raises(ConfigError, match="'nowhere' is not configured"):
        TableName("lake.flights", "nowhere").open_catalog()
