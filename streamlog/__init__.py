"""NATS in, Kafka out, Spark over: NATS subjects as durable, totally ordered logs.

The way of the data, which is also the order in which to read the packages::

    publisher ──▶ NATS ──▶ ingest ──▶ partition ──▶ log ──▶ kafka ──▶ Kafka consumers
        ▲                                 │                └─ sendfile
        └──────────── PubAck ◀────────────┘            spark ──▶ the same segment files

- ``ingest`` turns one socket read of NATS into one record batch per partition.
- ``partition`` is the only writer of a local log; it decides when records are committed.
- ``log`` appends, reads, rolls, recovers and retains one partition's segment files.
- ``replication`` is the arithmetic of what is committed, and the state of idempotent producers. Pure.
- ``metadata`` is the cluster's truth: a controller decides, records are logged, an image is built.
- ``kafka`` answers Kafka's protocol; ``client`` speaks it; ``wire`` and ``record`` are its bytes.
- ``jetstream`` answers JetStream's management API over NATS; ``http`` serves metrics and the page.
- ``authn`` proves who asks; ``acl`` decides what they may do; ``authz`` applies and audits it.
- ``app`` builds a node, starts and stops it in order; ``cli`` parses arguments.

Words: an *offset* is a record's position in its partition, from 0; every upper bound is exclusive,
so the *log end offset* is the next offset to be written and all records below the *high watermark*
are committed. A *leader epoch* grows with each change of a partition's leader.

Invariants: ``log_start_offset <= high_watermark <= log_end_offset``; a record below the high
watermark never changes; nothing is acknowledged that is not below it.
"""

__version__ = "0.1.0"
