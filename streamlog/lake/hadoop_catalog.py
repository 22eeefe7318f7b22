"""A catalog that is nothing but folders, as Iceberg's Hadoop catalog has them: a file system, or an object store.

A table ``lake.flights`` is the folder ``WAREHOUSE/lake/flights``. In its folder ``metadata`` the file
``vN.metadata.json`` with the highest N is what counts, and ``version-hint.text`` says where to begin looking.
(Iceberg's specification, "File System Tables"; the names are those of its ``HadoopTableOperations``.) Spark, Trino
and others read it with a catalog of type ``hadoop``, or by the path of the table.

A commit creates ``v(N+1)``. Iceberg renames a file to it, which is atomic on HDFS and not on an object store. Here it
is a put with the condition that no such object exists, which S3, GCS, Azure and a local file system have. Two rules
keep a commit from taking effect twice, and from being told of although it took no effect:

- A store may answer "it exists" because an earlier attempt of the same put has succeeded. So what exists is compared
  with what was to be put. Where that cannot be read, the outcome is unknown, and it is said so.
- Old versions are removed. So a writer that stood still for many commits may create a version again that was there
  before. After each put it looks for later versions. If there are some, and the latest does not show that it comes from
  this one, then the outcome is unknown, and this version is removed: it is no longer the table's either way.

A crash between the put and the hint leaves an old hint. Readers go forward from it.
"""

import contextlib
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import MetastoreCatalog, PropertiesUpdateSummary
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NoSuchViewError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.view import View

from streamlog.errors import CatalogUnavailable, ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from obstore.store import ObjectStore

logger = logging.getLogger(__name__)

HINT: Final = "version-hint.text"
READ_TRIES: Final = 5
"""The version that was found may be removed before it is read, if that many commits come in between."""
_VERSION: Final = re.compile(r"v(\d+)(?:\.gz)?\.metadata\.json")
_S3_OPTIONS: Final = {
    "s3.endpoint": "endpoint",
    "s3.region": "region",
    "s3.access-key-id": "access_key_id",
    "s3.secret-access-key": "secret_access_key",
    "s3.session-token": "session_token",
    "s3.anonymous": "skip_signature",
    "s3.force-virtual-addressing": "virtual_hosted_style_request",
}
"""PyIceberg's properties by the names that obstore has for them."""
_SCHEMES: Final = ("file", "s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss")


class HadoopCatalog(MetastoreCatalog):
    """See the module. ``warehouse``: a folder, or the URL of one.

    Credentials of S3 are PyIceberg's properties ``s3.…`` or the usual variables; of other stores the variables that
    obstore reads. Any method raises CatalogUnavailable where the store does not answer.
    """

    def __init__(self, name: str, **properties: str) -> None:
        """Raises ConfigError."""
        super().__init__(name, **properties)
        self.warehouse = properties.get("warehouse", "").rstrip("/")
        self._files = _Files(self.warehouse, properties)

    # Tables

    def create_table(  # noqa: PLR0917 (PyIceberg's)
        self,
        identifier: str | Identifier,
        schema: "Schema | pa.Schema",
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Raises TableAlreadyExistsError; ConfigError for a location of its own."""
        path = _path(identifier)
        version = int(properties.get("format-version", 2))
        metadata = new_table_metadata(
            location=self._resolve_table_location(location, *self._split(identifier)),
            schema=self._convert_schema_if_needed(schema, version),  # type: ignore[arg-type]
            partition_spec=partition_spec,
            sort_order=sort_order,
            properties=properties,
        )
        if self._newest(path) is not None or not self._put(path, 1, metadata):
            raise TableAlreadyExistsError(f"table {path} exists already")
        self._hint(path, 1)
        return self.load_table(identifier)

    def load_table(self, identifier: str | Identifier) -> Table:
        path = _path(identifier)
        for _ in range(READ_TRIES):
            newest = self._newest(path)
            if newest is None:
                raise NoSuchTableError(f"there is no table {path} in {self.warehouse}")
            location = self._location(path, newest)
            io = self._load_file_io(location=location)
            try:
                metadata = FromInputFile.table_metadata(io.new_input(location))
            except FileNotFoundError:
                continue  # removed meanwhile
            return Table(self.identifier_to_tuple(identifier), metadata, location, io, self)
        raise CatalogUnavailable(f"{path}: versions are removed faster than they are read")

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Raises CommitFailedException, TableAlreadyExistsError: nothing has changed; CommitStateUnknownException."""
        path = _path(table.name())
        current: Table | None
        try:
            current = self.load_table(table.name())
        except NoSuchTableError:
            current = None
        staged = self._update_and_stage_table(current, table.name(), requirements, updates)
        if current is not None and staged.metadata == current.metadata:
            return CommitTableResponse(
                metadata=current.metadata, metadata_location=current.metadata_location
            )
        version = 1 if current is None else _version_of(current.metadata_location) + 1
        if not self._put(path, version, staged.metadata):
            if current is None:
                raise TableAlreadyExistsError(f"table {path} exists already")
            raise CommitFailedException(f"version {version} of {path} is another commit's")
        base = None if current is None else current.metadata
        self._check_in_line(path, version, staged.metadata, base)
        self._hint(path, version)
        return CommitTableResponse(
            metadata=staged.metadata, metadata_location=self._location(path, _file(version))
        )

    def drop_table(self, identifier: str | Identifier) -> None:
        """All files of its folder, as Iceberg's own does it."""
        path = _path(identifier)
        if self._newest(path) is None:
            raise NoSuchTableError(f"there is no table {path} in {self.warehouse}")
        self._files.delete(self._files.names_below(path))

    def purge_table(self, identifier: str | Identifier) -> None:
        self.drop_table(identifier)

    def rename_table(
        self, from_identifier: str | Identifier, to_identifier: str | Identifier
    ) -> Table:
        raise NotImplementedError("a table of a Hadoop catalog is where its name says")

    def register_table(
        self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False
    ) -> Table:
        raise NotImplementedError("a Hadoop catalog has the tables that are in its folder")

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        inside = self._children(namespace)
        return [it for it in inside if self._newest("/".join(it)) is not None]

    # Namespaces: folders that are no tables

    def create_namespace(
        self, namespace: str | Identifier, properties: Properties = EMPTY_DICT
    ) -> None:
        if properties:
            raise NotImplementedError("a namespace of a Hadoop catalog has no properties")
        if self.namespace_exists(namespace):
            raise NamespaceAlreadyExistsError(f"namespace {_path(namespace)} exists already")
        self._files.make_folder(_path(namespace))

    def drop_namespace(self, namespace: str | Identifier) -> None:
        self.load_namespace_properties(namespace)
        if self._children(namespace):
            raise NamespaceNotEmptyError(f"namespace {_path(namespace)} is not empty")
        self._files.remove_folder(_path(namespace))

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        inside = self._children(namespace)
        return [it for it in inside if self._newest("/".join(it)) is None]

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        path = _path(namespace)
        if not self._files.has_folder(path) or self._newest(path) is not None:
            raise NoSuchNamespaceError(f"there is no namespace {path} in {self.warehouse}")
        return {"location": f"{self.warehouse}/{path}"}

    def update_namespace_properties(
        self,
        namespace: str | Identifier,
        removals: set[str] | None = None,
        updates: Properties = EMPTY_DICT,
    ) -> PropertiesUpdateSummary:
        raise NotImplementedError("a namespace of a Hadoop catalog has no properties")

    # Views: there are none

    def list_views(self, namespace: str | Identifier) -> list[Identifier]:
        return []

    def view_exists(self, identifier: str | Identifier) -> bool:
        return False

    def load_view(self, identifier: str | Identifier) -> View:
        raise NoSuchViewError("a Hadoop catalog has no views")

    def drop_view(self, identifier: str | Identifier) -> None:
        raise NoSuchViewError("a Hadoop catalog has no views")

    def register_view(self, identifier: str | Identifier, metadata_location: str) -> View:
        raise NotImplementedError("a Hadoop catalog has no views")

    # Its files

    def _split(self, identifier: str | Identifier) -> tuple[str, str]:
        *namespace, name = self.identifier_to_tuple(identifier)
        return "/".join(namespace), name

    def _resolve_table_location(
        self, location: str | None, database_name: str, table_name: str
    ) -> str:
        default = "/".join(filter(None, (self.warehouse, database_name, table_name)))
        if location and location.rstrip("/") != default:
            problem = f"a table of a Hadoop catalog is at {default}"
            raise ConfigError("--location", problem, "leave it out")
        return default

    def _location(self, path: str, file: str) -> str:
        return f"{self.warehouse}/{path}/metadata/{file}"

    def _children(self, namespace: str | Identifier) -> list[Identifier]:
        path = _path(namespace)
        if path and not self._files.has_folder(path):
            raise NoSuchNamespaceError(f"there is no namespace {path} in {self.warehouse}")
        return [tuple(it.split("/")) for it in self._files.folders(path)]

    def _newest(self, path: str) -> str | None:
        """The name of the file of metadata. None: no table."""
        hint = self._files.read(f"{path}/metadata/{HINT}")
        found, version = None, 0
        if hint is not None and hint.strip().isdigit():
            version = int(hint)
            found = self._file_of(path, version)
        if found is None:  # no hint, or what it names has been removed
            versions = self._versions(path)
            if not versions:
                return None
            version = max(versions)
            found = versions[version]
        while (later := self._file_of(path, version + 1)) is not None:
            found, version = later, version + 1
        return found

    def _file_of(self, path: str, version: int) -> str | None:
        for name in (_file(version), f"v{version}.gz.metadata.json"):
            if self._files.exists(f"{path}/metadata/{name}"):
                return name
        return None

    def _versions(self, path: str) -> dict[int, str]:
        names = self._files.names_in(f"{path}/metadata")
        return {int(found[1]): name for name in names if (found := _VERSION.fullmatch(name))}

    def _put(self, path: str, version: int, metadata: TableMetadata) -> bool:
        """False: this version is another commit's."""
        data = metadata.model_dump_json(exclude_none=True).encode()
        name = f"{path}/metadata/{_file(version)}"
        if self._file_of(path, version) is not None:  # another engine may write ``.gz``
            return self._files.read(name) == data
        return self._files.create(name, data)

    def _check_in_line(
        self, path: str, version: int, metadata: TableMetadata, base: TableMetadata | None
    ) -> None:
        """Raises CommitStateUnknownException if others have come further, and not from this version on."""
        newest = self._newest(path)
        if newest is None or _version_of(newest) <= version:
            return
        location = self._location(path, newest)
        io = self._load_file_io(location=location)
        try:
            latest = FromInputFile.table_metadata(io.new_input(location))
        except Exception as error:
            raise CommitStateUnknownException(f"{path}: {_line(error)}") from error
        if self._location(path, _file(version)) in {it.metadata_file for it in latest.metadata_log}:
            return
        before = set() if base is None else {it.snapshot_id for it in base.snapshots}
        added = {it.snapshot_id for it in metadata.snapshots} - before
        if added & {it.snapshot_id for it in latest.snapshots}:
            return  # the log of versions is short
        with contextlib.suppress(CatalogUnavailable):
            self._files.delete([f"{path}/metadata/{_file(version)}"])
        raise CommitStateUnknownException(f"{path} is at {newest}, not from version {version} on")

    def _hint(self, path: str, version: int) -> None:
        """Readers find later versions without it."""
        try:
            self._files.write(f"{path}/metadata/{HINT}", str(version).encode())
        except CatalogUnavailable as error:
            logger.debug("the hint stays as it was", extra={"table": path, "error": str(error)})


class _Files:
    """Of a warehouse. Names are relative to it. Any method raises CatalogUnavailable."""

    def __init__(self, warehouse: str, properties: Properties) -> None:
        """Raises ConfigError."""
        if not warehouse:
            remedy = "set its property warehouse to a folder, or to the URL of one"
            raise ConfigError("warehouse", "a Hadoop catalog needs it", remedy)
        self.folder: Path | None = None
        """Of a local file system."""
        self._store = self._opened(warehouse, properties)

    def _opened(self, warehouse: str, properties: Properties) -> "ObjectStore":
        try:
            from obstore.exceptions import BaseError
            from obstore.store import LocalStore, from_url
        except ImportError:
            remedy = "pip install 'streamlog[lake]'"
            raise ConfigError("warehouse", "needs the package obstore", remedy) from None
        split = urlsplit(warehouse)
        if split.scheme and split.scheme not in _SCHEMES:
            problem = f"{split.scheme}:// cannot be written to under a condition by this catalog"
            raise ConfigError("warehouse", problem, f"one of {', '.join(_SCHEMES)}, or a folder")
        try:
            if split.scheme in ("", "file"):
                self.folder = Path(unquote(split.path) if split.scheme else warehouse).absolute()
                return LocalStore(self.folder, mkdir=True)
            options: dict[str, Any] = {}
            if split.scheme in ("s3", "s3a"):
                options = {
                    new: properties[it] for it, new in _S3_OPTIONS.items() if it in properties
                }
            is_plain = str(options.get("endpoint", "")).startswith("http://")
            return from_url(warehouse, client_options={"allow_http": is_plain}, **options)
        except (BaseError, ValueError, OSError) as error:
            raise ConfigError("warehouse", f"{warehouse}: {_line(error)}", "correct it") from None

    def exists(self, name: str) -> bool:
        import obstore

        try:
            self._asked(obstore.head, name)
        except FileNotFoundError:
            return False
        return True

    def read(self, name: str) -> bytes | None:
        """None: it is not there."""
        import obstore

        def get(store: "ObjectStore", name: str) -> bytes:
            return bytes(obstore.get(store, name).bytes())

        try:
            data: bytes = self._asked(get, name)
        except FileNotFoundError:
            return None
        return data

    def write(self, name: str, data: bytes) -> None:
        import obstore

        self._asked(obstore.put, name, data)

    def create(self, name: str, data: bytes) -> bool:
        """False: there is something else of this name. Raises CommitStateUnknownException."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            obstore.put(self._store, name, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            pass
        except (BaseError, OSError) as error:
            raise CommitStateUnknownException(f"{name}: {_line(error)}") from error
        else:
            return True
        try:
            return (
                self.read(name) == data
            )  # an earlier attempt of this very put may have come through
        except CatalogUnavailable as error:
            raise CommitStateUnknownException(f"{name}: {error}") from error

    def delete(self, names: list[str]) -> None:
        import obstore

        if names:
            self._asked(obstore.delete, names)

    def names_in(self, path: str) -> list[str]:
        """Of files, without those of folders in it."""
        import obstore

        found = self._asked(obstore.list_with_delimiter, path)
        return [it["path"].rpartition("/")[2] for it in found["objects"]]

    def names_below(self, path: str) -> list[str]:
        import obstore

        def names(store: "ObjectStore", path: str) -> Iterator[str]:
            return iter([it["path"] for chunk in obstore.list(store, path) for it in chunk])

        return list(self._asked(names, path))

    def folders(self, path: str) -> list[str]:
        import obstore

        return sorted(self._asked(obstore.list_with_delimiter, path)["common_prefixes"])

    def has_folder(self, path: str) -> bool:
        if self.folder is not None:
            return (self.folder / path).is_dir()
        import obstore

        found = self._asked(obstore.list_with_delimiter, path)
        return bool(found["common_prefixes"] or found["objects"])

    def make_folder(self, path: str) -> None:
        """An object store has none that are empty."""
        if self.folder is not None:
            (self.folder / path).mkdir(parents=True, exist_ok=True)

    def remove_folder(self, path: str) -> None:
        if self.folder is not None:
            (self.folder / path).rmdir()

    def _asked(self, request: Any, *arguments: Any) -> Any:
        """Raises FileNotFoundError and CatalogUnavailable."""
        from obstore.exceptions import BaseError

        try:
            return request(self._store, *arguments)
        except FileNotFoundError:
            raise
        except (BaseError, OSError) as error:
            raise CatalogUnavailable(_line(error)) from error


def _path(identifier: str | Identifier) -> str:
    parts = identifier.split(".") if isinstance(identifier, str) else identifier
    return "/".join(filter(None, parts))


def _file(version: int) -> str:
    return f"v{version}.metadata.json"


def _version_of(location: str) -> int:
    found = _VERSION.fullmatch(location.rpartition("/")[2])
    if found is None:
        raise CommitFailedException(f"{location} is no version of a table of a Hadoop catalog")
    return int(found[1])


def _line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:300] or type(error).__name__
