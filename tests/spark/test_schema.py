import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from pyspark_streamlog.source.schema import TYPES, arrow_schema_of, source_schema
from streamlog.errors import ConfigError
from streamlog.record.columns import COLUMNS


def test_the_schema_is_that_of_sparks_kafka_source_and_subject() -> None:
    assert source_schema(include_headers=False).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,subject:string>"
    )
    with_headers = source_schema(include_headers=True)
    assert with_headers.fieldNames() == list(COLUMNS)
    assert with_headers["headers"].dataType.simpleString() == (
        "array<struct<key:string,value:binary>>"
    )


def test_arrow_sees_what_spark_expects() -> None:
    """Spark compares the two strictly."""
    schema = source_schema(include_headers=True)
    assert arrow_schema_of(schema).equals(to_arrow_schema(schema, timezone="UTC"))


def test_a_readers_own_schema_may_choose_and_order_columns() -> None:
    fields = [StructField("offset", LongType(), nullable=False), StructField("key", BinaryType())]
    schema = StructType(fields)
    assert arrow_schema_of(schema).equals(to_arrow_schema(schema, timezone="UTC"))
    assert set(TYPES) == set(COLUMNS)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (StructField("payload", BinaryType()), "there is no column payload binary; choose from"),
        (StructField("value", StringType()), "value string has the wrong type; make it binary"),
        (StructField("key", BinaryType(), nullable=False), "key binary may be null"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(field: StructField, text: str) -> None:
    with pytest.raises(ConfigError, match=f"^schema: {text}"):
        arrow_schema_of(StructType([field]))


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^schema: it has no column"):
        arrow_schema_of(StructType([]))
