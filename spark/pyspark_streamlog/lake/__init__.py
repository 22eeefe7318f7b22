"""Streams as Iceberg tables, written and read by Spark.

``source`` is read by a streaming query whose tasks write data files themselves and yield what they have written;
``streaming_job`` commits that. So records do not pass through the JVM. ``union`` reads a table and what follows it in
the log.
"""
