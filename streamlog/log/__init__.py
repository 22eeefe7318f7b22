"""One partition's log on disk: append, read, roll, recover, retain, compact. No asyncio, it blocks.

A log is a folder of segments, named and laid out as Kafka does: ``%020d.log`` holds record batches
v2 back to back, ``%020d.index`` and ``%020d.timeindex`` are sparse maps from offset and time to a
place in it, ``leader-epoch-checkpoint`` says at which offset each leader epoch began. The last
segment is *active*: it alone is written, and its indexes are in memory until it is sealed or the
log is closed.

Invariants: batches are dense (in a compacted log records are not), and never split over segments;
what lies below ``recovery_point`` has been synced, its folder entries included; a batch is served
only if its checksum was right once since the log was opened, or if this process wrote it.

Reading order: ``disk`` (all file access), ``files`` (bounded open files), ``slice``, ``index``,
``scan`` (walk over batches), ``segment``, ``active``, ``recovery``, ``sync``, ``log``; then
``retention``, ``scrub``, ``times``, ``verify``, ``dump``, ``quarantine`` (damaged segments kept
aside), ``reserve`` (room for the metadata of a full disk), ``beside`` (small files of others),
``recovery_limit`` (a cut since the last checkpoint), ``folder_lock`` (one process at a time),
``compaction``.

A :class:`~streamlog.log.log.PartitionLog` has one owner and is not thread-safe, except for what is
meant for a worker thread: ``SyncTicket.run``, ``Segment.verify`` and ``FileSlice``. It knows
nothing of high watermarks; who reads passes the offset below which it may read.

Retention works on whole segments: a log keeps at least what its limits say, and at most one segment
more.
"""
