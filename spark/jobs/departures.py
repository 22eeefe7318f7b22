"""Flights by day and origin, out of one stream and into another.

    python spark/jobs/departures.py --bootstrap-server HOST:PORT --stream flights --to departures \\
        --checkpoint FOLDER [--once]

A day is counted by the time at which its flights should depart. It is written when it is over: when
a flight has come that departs later than the day's end by the allowed lateness. Flights that come
later than that are not counted. The checkpoint has the days that are open; with it, each day is
written once.
"""

import argparse
from typing import TYPE_CHECKING, Final

from pyspark_streamlog.session import close_session, open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LATENESS: Final = "1 day"
FLIGHT: Final = "origin STRING, time_hour TIMESTAMP"
OFFSETS_MAX: Final = 100_000


def departures(flights: "DataFrame", lateness: str = LATENESS) -> "DataFrame":
    """Key: the origin; value: JSON of day, origin and count."""
    from pyspark.sql import functions as f

    flight = f.from_json(f.col("value").cast("string"), FLIGHT)
    return (
        flights.select(flight.alias("flight"))
        .select("flight.*")
        .withWatermark("time_hour", lateness)
        .groupBy(f.window("time_hour", "1 day"), "origin")
        .count()
        .select(
            f.col("origin").alias("key"),
            f.to_json(
                f.struct(f.to_date("window.start").alias("day"), "origin", "count"),
                {"timeZone": "UTC"},
            ).alias("value"),
        )
    )


def start(
    spark: "SparkSession",
    servers: str,
    stream: str,
    to: str,
    checkpoint: str,
    *,
    once: bool = False,
    offsets_max: int = OFFSETS_MAX,
) -> "StreamingQuery":
    """``once``: the query ends when it has read what is there now. Days are those of UTC."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    flights = (
        spark.readStream.format("streamlog")
        .options(servers=servers, subscribe=stream, startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", offsets_max)
        .schema("value BINARY")
        .load()
    )
    writer = (
        departures(flights)
        .writeStream.format("streamlog")
        .options(servers=servers, topic=to, checkpointLocation=checkpoint)
    )
    return (writer.trigger(availableNow=True) if once else writer).start()


def main() -> None:
    parser = argparse.ArgumentParser(description="Flights by day and origin, as they depart.")
    parser.add_argument(
        "--bootstrap-server", dest="servers", required=True, help="host:port,host:port"
    )
    parser.add_argument("--stream", default="flights")
    parser.add_argument("--to", required=True, help="a stream that is there")
    parser.add_argument("--checkpoint", required=True, help="a folder of this query's own")
    parser.add_argument("--once", action="store_true", help="end when all that is there is read")
    arguments = parser.parse_args()
    spark = open_session("departures")
    try:
        query = start(
            spark,
            arguments.servers,
            arguments.stream,
            arguments.to,
            arguments.checkpoint,
            once=arguments.once,
        )
        query.awaitTermination()
    finally:
        close_session(spark)


if __name__ == "__main__":
    main()
