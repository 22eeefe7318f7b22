"""Owns each local partition: the only writer of its log and of its in-sync state.

- ``replica_manager`` all partitions: opened, led, followed and closed as the metadata image says.
- ``partition`` one of them, as the rest of the node uses it: append, read, watch, purge.
- ``state`` its core, without asyncio: append, sync, high watermark. It returns what is to be done
  as a ``Step``, which the partition carries out in one place. ``producer_state_manager``
  deduplicates Kafka producers' batches.
- ``replication`` follows other leaders (``replica_fetcher``), proposes changes of the ISR.
- ``storage`` folders, opening, group commit (``flusher``), checkpoints, deletion.
- ``deletes`` of single messages: on request, by TTL, by a limit for each subject, and by ``discard_new``.
- ``maintenance`` retention and checkpoints, compaction (``log_cleaner``), scrub, auto-pause.
- ``subjects`` indexes of subjects; ``reader`` checks what it reads first, in a worker thread.

Invariants: ``log_start_offset <= high_watermark <= log_end_offset``; an acknowledgement is
committed once, in order, after its records are below the high watermark and while the node leads
and holds its lease, or failed once; a log start is durable before a file below it is removed and
before it is reported or acknowledged; a follower's log is truncated only where its leader's
diverges, and not below the high watermark while it is in sync; a failing disk takes its partition
offline.

State is touched on the event loop alone; worker threads get tickets (a sync, a check, a cut, a
deletion). It knows neither NATS nor sockets: ``ingest`` appends, ``kafka`` reads.
"""
