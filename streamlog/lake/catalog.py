"""Catalogs as PyIceberg knows them: by name, from ``.pyiceberg.yaml`` and ``PYICEBERG_CATALOG__…``.

``PYICEBERG_CATALOG__DEFAULT__URI=…`` and the file's ``catalog: default: uri: …`` are PyIceberg's own convention, as
are all properties. What is given in ``properties`` wins over both.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from streamlog.errors import CatalogUnavailable, ConfigError, StreamlogError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

DEFAULT_CATALOG: Final = "default"
HADOOP: Final = "hadoop"
"""The type of a catalog that PyIceberg does not have."""
_FILE_IO: Final = "pyiceberg.io.pyarrow.PyArrowFileIO"


@dataclass(frozen=True)
class TableName:
    """A table of a catalog. Can be pickled."""

    table: str
    """``NAMESPACE.NAME``."""
    catalog: str = DEFAULT_CATALOG
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.table.split(".")) < 2 or not all(self.table.split(".")):
            problem = f"{self.table!r} names no table of a namespace"
            raise ConfigError("--table", problem, "write NAMESPACE.NAME")

    @property
    def identifier(self) -> tuple[str, ...]:
        return tuple(self.table.split("."))

    @property
    def dead_letters(self) -> "TableName":
        return TableName(f"{self.table}__dead_letters", self.catalog, self.properties)

    def open_catalog(self) -> "Catalog":
        """Raises ConfigError and CatalogUnavailable."""
        check_pyiceberg()
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NotInstalledError

        properties = {"py-io-impl": _FILE_IO, **self.properties}
        try:
            if (configured := self._configured(properties)).get("type", "").lower() == HADOOP:
                from streamlog.lake.hadoop_catalog import HadoopCatalog

                return HadoopCatalog(self.catalog, **configured)
            return load_catalog(self.catalog, **properties)
        except StreamlogError:
            raise
        except (ImportError, NotInstalledError) as error:
            problem = f"{self.catalog!r} lacks a package ({_line(error)})"
            remedy = "install PyIceberg's extra for it, such as 'pyiceberg[sql-postgres]'"
            raise ConfigError("--catalog", problem, remedy) from None
        except (ValueError, KeyError) as error:
            problem = f"{self.catalog!r} is not configured ({_line(error)})"
            name = self.catalog.upper()
            remedy = f"set PYICEBERG_CATALOG__{name}__URI, or write it into .pyiceberg.yaml"
            raise ConfigError("--catalog", problem, remedy) from None
        except Exception as error:  # each kind of catalog has errors of its own
            raise CatalogUnavailable(f"catalog {self.catalog!r}: {_line(error)}") from error

    def _configured(self, properties: Mapping[str, str]) -> dict[str, str]:
        """With what the file and the variables say."""
        from pyiceberg.utils.config import Config

        told = Config().get_catalog_config(self.catalog) or {}
        return {**{key: str(value) for key, value in told.items()}, **properties}


def check_pyiceberg() -> None:
    """Raises ConfigError."""
    try:
        import pyarrow as pa
        import pyiceberg
    except ImportError:
        remedy = "pip install 'streamlog[lake]'"
        raise ConfigError("pyiceberg", "is not installed", remedy) from None
    del pa, pyiceberg


def _line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200] or type(error).__name__
