from typing import TYPE_CHECKING

from streamlog.arrow.location import PartitionRange
from streamlog.arrow.options.read_options import ReadOptions
from streamlog.record.columns import ColumnDecoder

if TYPE_CHECKING:
    import pyarrow as pa


def decoder_for(range_: PartitionRange, options: ReadOptions, schema: "pa.Schema") -> ColumnDecoder:
    """Rows of the range, columns of the schema, Arrow batches as large as was asked for."""
    return ColumnDecoder(
        schema.names,
        start_offset=range_.start_offset,
        end_offset=range_.end_offset,
        check_crc=options.check_crc,
        rows_max=options.batch_rows,
        bytes_max=options.batch_bytes,
    )
