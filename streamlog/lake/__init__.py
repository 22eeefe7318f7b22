"""Streams as Apache Iceberg tables."""
