"""The readers of the places where streams lie: nodes, asked by sockets; segment files; and objects of tiered storage.

Each is imported when it is used: reading files needs no client.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamlog.arrow.location import Location, PartitionRange
from streamlog.arrow.options.read_options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa


def open_location(options: ReadOptions) -> Location:
    if options.path is not None:
        from streamlog.arrow.files.stream_folder import FolderLocation

        return FolderLocation(options.path, options.keys)
    if options.store is not None:
        from streamlog.arrow.store.tiered_location import TieredLocation

        return TieredLocation(options)
    from streamlog.arrow.servers.cluster_location import ClusterLocation

    return ClusterLocation(options)


def rows_of(
    range_: PartitionRange, options: ReadOptions, schema: "pa.Schema"
) -> Iterator["pa.RecordBatch"]:
    """All rows of the range, with the columns of the schema."""
    if options.path is not None:
        from streamlog.arrow.files.file_reader import FileReader

        yield from FileReader(range_, options, schema).read()
    elif range_.stored is not None:
        from streamlog.arrow.store.tiered_reader import TieredReader

        yield from TieredReader(range_, options, schema).read()
    else:
        from streamlog.arrow.servers.fetch_reader import FetchReader

        yield from FetchReader(range_, options, schema).read()
