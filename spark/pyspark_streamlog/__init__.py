"""Spark reads streams: the data source ``streamlog``.

::

    reader = spark.read.format("streamlog").option("servers", "node-1:9092")
    orders = reader.option("subscribe", "orders").load()

Spark finds it by itself, by the name of this package, in every Python that has streamlog installed:
driver and executors. That look-up happens in every Spark application on the machine, so importing
this package loads nothing but the class below, and cannot fail.

The way of a query, on the driver: ``options`` are checked (``option_names``, ``given``,
``subscription``, ``offsets``, ``security``); a ``place``, which is a ``folder`` of ``files``, or
``servers``, tells what there is; ``snapshot`` fixes, once, the range of offsets to read of each
partition, never past the high watermark, and ``narrowing`` makes it smaller where filters allow;
the place cuts the ranges into tasks. On executors ``file_reader`` or ``fetch_reader`` feeds batches
to the decoder of ``streamlog.record`` and yields Arrow record batches; ``loss`` tells what is
missing.

A stream is the same again for each micro-batch: ``stream_reader`` keeps ``stream_offsets`` in
Spark's checkpoint, and ``advancing`` decides, without I/O, how far the next batch goes.

The way of a write: ``writer_options`` and ``writer_schema`` are checked on the driver; in each task
``writer`` makes an ``attempt``, and ``task_writer`` turns ``rows`` into record batches, one
``partition_writer`` for each partition, and has them committed by its ``leaders``. Who is refused
since another attempt was there looks for what is there already: ``earlier``.

Reading leaves nothing on a node: no lock, no repair, no group. Of streamlog it uses only
``client``, ``wire``, ``record``, ``log`` (the reading parts), ``errors`` and ``model``.
"""

import contextlib

with contextlib.suppress(ImportError):  # no Spark, or one that has no Python data sources
    from pyspark_streamlog.source import DefaultSource as DefaultSource
