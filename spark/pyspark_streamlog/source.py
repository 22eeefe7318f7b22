from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_streamlog.reader import StreamlogReader
    from pyspark_streamlog.stream_reader import StreamlogStreamReader


class DefaultSource(DataSource):
    """What ``format("streamlog")`` stands for. Each method imports what it needs when called."""

    @classmethod
    def name(cls) -> str:
        return "streamlog"

    def schema(self) -> "StructType":
        from pyspark_streamlog.options import includes_headers
        from pyspark_streamlog.schema import source_schema

        return source_schema(include_headers=includes_headers(self.options))

    def reader(self, schema: "StructType") -> "StreamlogReader":
        from pyspark_streamlog.options import ReadOptions
        from pyspark_streamlog.reader import FilteringReader, StreamlogReader

        options = ReadOptions.parse(self.options)
        return (FilteringReader if options.filter_pushdown else StreamlogReader)(options, schema)

    def streamReader(self, schema: "StructType") -> "StreamlogStreamReader":  # noqa: N802
        from pyspark_streamlog.options import ReadOptions
        from pyspark_streamlog.stream_reader import StreamlogStreamReader

        return StreamlogStreamReader(ReadOptions.parse(self.options, streaming=True), schema)

    def writer(self, schema: "StructType", overwrite: bool) -> Any:
        self._refuse("write", "publish to the stream's subject over NATS")

    def streamWriter(self, schema: "StructType", overwrite: bool) -> NoReturn:  # noqa: N802
        self._refuse("writeStream", "publish to the stream's subject over NATS")

    def _refuse(self, what: str, remedy: str) -> NoReturn:
        from streamlog.errors import ConfigError

        raise ConfigError(what, "the source streamlog cannot do this", remedy)
