"""Options that the commands of ``streamlog lake`` share."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from streamlog.cli.output import say
from streamlog.config.units import duration_ms, size_text
from streamlog.errors import ConfigError

if TYPE_CHECKING:
    from streamlog.lake.catalog import TableName
    from streamlog.lake.maintain import Done

Table = Annotated[str, typer.Option("--table", metavar="NAMESPACE.NAME", help="The table.")]
Catalog = Annotated[
    str,
    typer.Option(
        help="A catalog of .pyiceberg.yaml, or of variables PYICEBERG_CATALOG__NAME__..., by its name."
    ),
]
CatalogProperty = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="A property of the catalog, as PyIceberg calls it: uri=..., warehouse=... May be repeated. It is"
        " seen in the list of processes: keep secrets in the file or in variables.",
    ),
]


def table_name(table: str, catalog: str, properties: Iterable[str] | None) -> "TableName":
    """Raises ConfigError."""
    from streamlog.lake.catalog import TableName

    return TableName(table, catalog, pairs(properties, "--catalog-property"))


def pairs(given: Iterable[str] | None, option: str) -> dict[str, str]:
    """``NAME=VALUE``, each. Raises ConfigError."""
    found = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ConfigError(option, f"{text!r} has no name and value", "write NAME=VALUE")
        found[name] = value
    return found


def say_done(table: str, done: "Done") -> None:
    say(
        f"{table}: {done.small_files} small files are {done.large_files} now,"
        f" {done.aged_files} files with aged records and {done.snapshots} snapshots are gone,"
        f" {done.orphans} orphans ({size_text(done.orphan_bytes)}) removed"
    )


def age_ms(text: str, option: str) -> int | None:
    """None: never. Raises ConfigError."""
    if text == "never":
        return None
    try:
        return duration_ms(text)
    except ValueError as error:
        raise ConfigError(option, str(error), "write 7d, 12h or never") from None
