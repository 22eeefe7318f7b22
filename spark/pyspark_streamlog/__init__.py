"""Spark reads streams: the data source ``streamlog``.

::

    reader = spark.read.format("streamlog").option("servers", "node-1:9092")
    orders = reader.option("subscribe", "orders").load()

Spark finds it by itself, by the name of this package, in every Python that has streamlog installed:
driver and executors. That look-up happens in every Spark application on the machine, so importing
this package loads nothing but the class below, and cannot fail.

What does not need Spark is ``streamlog.arrow``: locations, plans, readers of files and of servers, and
the writers of partitions. Here is what Spark adds to it.

A query, on the driver: ``options`` are checked, and turned into those of ``streamlog.arrow``, which
fixes the range of offsets to read of each partition, once, and never past the high watermark;
``source.filter_pushdown`` makes it smaller where the query's filters allow. The location cuts the ranges
into Spark's input partitions, which readers of ``streamlog.arrow`` read on executors.

A streaming query repeats this for each micro-batch: ``source.stream_reader`` keeps
``source.checkpoint_offsets`` in Spark's checkpoint, and ``source.micro_batch`` decides, without I/O, how
far the next batch goes.

A write: ``options.write_options`` and ``sink.schema`` are checked on the driver. In each task
``sink.writer`` hands the rows to ``streamlog.arrow.sink``.

Reading leaves nothing on a node: no lock, no repair, no group.
"""

import contextlib

with contextlib.suppress(ImportError):  # no Spark, or one that has no Python data sources
    from pyspark_streamlog.data_source import DefaultSource as DefaultSource
