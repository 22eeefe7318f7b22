"""A Spark session for a job that is run as a program."""

import os
from typing import TYPE_CHECKING, Final

from pyspark_streamlog.java import prepare_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_EXIT_TIMEOUT_S: Final = 60


def open_session(name: str, master: str | None = None) -> "SparkSession":
    """A session on this machine, unless ``spark-submit`` or ``master`` says otherwise."""
    prepare_environment()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    spark = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def close_session(spark: "SparkSession") -> None:
    """Stop, and return when the Java process that was started for it has ended."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    process = getattr(gateway, "proc", None)  # none under spark-submit, whose own it is
    if process is not None:
        process.stdin.close()  # at which it ends
        process.wait(JAVA_EXIT_TIMEOUT_S)
