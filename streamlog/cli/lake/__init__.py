"""Streams as Iceberg tables."""
