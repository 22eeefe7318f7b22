"""NATS messages to sequenced appends; an ack when, and only when, what it answers is committed.

What one turn of the event loop brings is one append for each partition in it, then, when the partition
reports the commit, one buffer of acks. Only a header that needs a decision costs a Python object.

- ``service`` all led partitions of a node; ``partition_ingest`` one leadership of one partition;
  ``partitioned_stream`` a stream whose messages are partitioned by hash.
- ``nats`` the link to nats-servers, as a client or a leafnode: login, TLS, subscriptions, reconnection.
- ``frames`` (compiled) messages into runs of records, each for its partition.
- ``backpressure`` the bytes that wait for a commit; ``pub_acks`` what publishers are told.
- ``admission`` whether a message is stored: headers, duplicates, expectations, TTL, rollups, atomic
  batches, ``discard=new``; a ``refusal`` where it is not. Pure, but for what watches a partition.
- ``pub_ack_format`` what publishers are told, in bytes. Pure.
- ``dedup_recovery`` the duplicate window after a start or a change of leaders.
- ``liftbridge`` the envelope of Liftbridge's clients. Pure.

Limits and backpressure: ``IngestSection``. Where the disk is too slow we stop reading from NATS for
a while, then refuse. Bounded: in-flight bytes, message ids, the frame under way, unsent acks.

Invariants: only a partition's leader takes its messages, while it holds the lease, and only
when it knows the ids in its log; nothing is acknowledged that is not committed; a message that is
not stored and asked for an answer gets a refusal at once.
"""
