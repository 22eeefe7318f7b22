from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_streamlog.reader import StreamlogReader


class DefaultSource(DataSource):
    """What ``format("streamlog")`` stands for. Each method imports what it needs when called."""

    @classmethod
    def name(cls) -> str:
        return "streamlog"

    def schema(self) -> "StructType":
        from pyspark_streamlog.options import ReadOptions
        from pyspark_streamlog.schema import source_schema

        return source_schema(include_headers=ReadOptions.parse(self.options).include_headers)

    def reader(self, schema: "StructType") -> "StreamlogReader":
        from pyspark_streamlog.options import ReadOptions
        from pyspark_streamlog.reader import StreamlogReader

        return StreamlogReader(ReadOptions.parse(self.options), schema)

    def streamReader(self, schema: "StructType") -> NoReturn:  # noqa: N802 - Spark's name
        self._refuse("readStream", "read it with spark.read")

    def writer(self, schema: "StructType", overwrite: bool) -> Any:
        self._refuse("write", "publish to the stream's subject over NATS")

    def streamWriter(self, schema: "StructType", overwrite: bool) -> NoReturn:  # noqa: N802
        self._refuse("writeStream", "publish to the stream's subject over NATS")

    def _refuse(self, what: str, remedy: str) -> NoReturn:
        from streamlog.errors import ConfigError

        raise ConfigError(what, "the source streamlog cannot do this", remedy)
