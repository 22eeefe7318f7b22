"""Spark reads streams: the data source ``streamlog``.

::

    orders = spark.read.format("streamlog").option("subscribe", "orders").load("/var/lib/streamlog")

Spark finds it by itself, by the name of this package, in every Python that has streamlog installed:
driver and executors. That look-up happens in every Spark application on the machine, so importing
this package loads nothing but the class below, and cannot fail.

The way of a query: ``options`` are checked; ``folder`` finds the partitions; ``snapshot`` fixes,
once and on the driver, the range of offsets to read of each, never past the high watermark;
``tasks`` cuts the ranges; executors run ``partition_reader``, which feeds segment bytes to the
decoder of ``streamlog.record`` and yields Arrow record batches.

It reads files, and writes none: no lock, no repair, no state left by a job. Of streamlog it uses
only ``record``, ``log`` (the reading parts), ``errors`` and ``model``.

The way of a write: ``writer_options`` and ``writer_schema`` are checked on the driver; in each task
``writer`` makes an ``attempt``, and ``task_writer`` turns ``rows`` into record batches, one
``partition_writer`` for each partition, and has them committed by its ``leaders``. Who is refused
since another attempt was there looks for what is there already: ``earlier``.
"""

import contextlib

with contextlib.suppress(ImportError):  # no Spark, or one that has no Python data sources
    from pyspark_streamlog.source import DefaultSource as DefaultSource
