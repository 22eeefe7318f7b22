"""``streamlog bench``: what a cluster of one's own can do.

Each command takes a cluster as it is and measures from outside, as any client would: ``publish``,
``latency`` and ``failover`` over NATS, ``consume`` over the socket API. Those that publish write
into the stream, and say so. ``group`` lists them; ``percentiles`` is arithmetic; ``writing`` what
the publishing ones share. The loops that must be fast, and that speak NATS, are in ``ingest``.
"""

from streamlog.cli.bench.group import app

__all__ = ["app"]
