"""Messages of a stream: read one by one or in ranges, deleted, purged, published again."""
