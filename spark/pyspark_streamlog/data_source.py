from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_streamlog.sink.writer import StreamlogStreamWriter, StreamlogWriter
    from pyspark_streamlog.source.batch_reader import StreamlogReader
    from pyspark_streamlog.source.stream_reader import StreamlogStreamReader


class DefaultSource(DataSource):
    """What ``format("streamlog")`` stands for. Each method imports what it needs when called."""

    @classmethod
    def name(cls) -> str:
        return "streamlog"

    def schema(self) -> "StructType":
        from pyspark_streamlog.options.read_options import includes_headers
        from pyspark_streamlog.source.schema import source_schema

        return source_schema(include_headers=includes_headers(self.options))

    def reader(self, schema: "StructType") -> "StreamlogReader":
        from pyspark_streamlog.options.read_options import SourceOptions
        from pyspark_streamlog.source.batch_reader import FilteringReader, StreamlogReader

        options = SourceOptions.parse(self.options)
        return (FilteringReader if options.filter_pushdown else StreamlogReader)(options, schema)

    def streamReader(self, schema: "StructType") -> "StreamlogStreamReader":  # noqa: N802
        from pyspark_streamlog.options.read_options import SourceOptions
        from pyspark_streamlog.source.stream_reader import StreamlogStreamReader

        return StreamlogStreamReader(SourceOptions.parse(self.options, streaming=True), schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "StreamlogWriter":
        from pyspark_streamlog.options.write_options import SinkOptions
        from pyspark_streamlog.sink.writer import StreamlogWriter, check_append

        check_append(overwrite)
        return StreamlogWriter(schema, SinkOptions.parse(self.options, streaming=False))

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: "StructType", overwrite: bool
    ) -> "StreamlogStreamWriter":
        from pyspark_streamlog.options.write_options import SinkOptions
        from pyspark_streamlog.sink.writer import StreamlogStreamWriter

        return StreamlogStreamWriter(schema, SinkOptions.parse(self.options, streaming=True))
