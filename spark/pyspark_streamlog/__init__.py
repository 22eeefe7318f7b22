"""Spark reads streams: the data source ``streamlog``.

::

    reader = spark.read.format("streamlog").option("servers", "node-1:9092")
    orders = reader.option("subscribe", "orders").load()

Spark finds it by itself, by the name of this package, in every Python that has streamlog installed:
driver and executors. That look-up happens in every Spark application on the machine, so importing
this package loads nothing but the class below, and cannot fail.

A query, on the driver: ``options`` are checked. ``source.location`` lists the partitions, either from
``files`` (a folder or an object store) or from ``servers``. ``source.offset_ranges`` fixes the range of
offsets to read of each partition, once, and never past the high watermark; ``source.filter_pushdown``
makes it smaller where the query's filters allow. The location cuts the ranges into Spark's input
partitions. On executors ``files.file_reader`` or ``servers.fetch_reader`` feeds record batches to the
decoder of ``streamlog.record`` and yields Arrow record batches; ``source.data_loss`` reports rows that
are missing.

A streaming query repeats this for each micro-batch: ``source.stream_reader`` keeps
``source.checkpoint_offsets`` in Spark's checkpoint, and ``source.micro_batch`` decides, without I/O, how
far the next batch goes.

A write: ``options.write_options`` and ``sink.schema`` are checked on the driver. In each task
``sink.writer`` makes a ``sink.task_attempt``, and ``sink.task_writer`` turns ``sink.rows`` into record
batches, one ``sink.partition_writer`` for each partition, and has them committed by
``sink.partition_leaders``. An attempt that is refused because another one has written already reads what
is in the log: ``sink.earlier_attempts``.

Reading leaves nothing on a node: no lock, no repair, no group. Of streamlog it uses only
``client``, ``wire``, ``record``, ``log`` (the reading parts), ``errors`` and ``model``.
"""

import contextlib

with contextlib.suppress(ImportError):  # no Spark, or one that has no Python data sources
    from pyspark_streamlog.data_source import DefaultSource as DefaultSource
