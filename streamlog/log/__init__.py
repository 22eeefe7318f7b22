"""One partition's log on disk: append, read, roll, recover, retain, compact. No asyncio, it blocks.

A log is a folder of segments, named and laid out as Kafka does: ``%020d.log`` holds record batches
v2 back to back, ``%020d.index`` and ``%020d.timeindex`` are sparse maps from offset and time to a
place in it, ``leader-epoch-checkpoint`` holds the offset at which each leader epoch began. Only the
last segment, the *active* one, is written; its indexes are in memory until it is sealed or the log
is closed.

- ``log`` one log, and the tickets by which worker threads sync what is dirty; ``retention``.
- ``manifest`` what the folder must hold; ``leader_epochs``, ``checkpoint`` and
  ``sidecar_files``: the small files beside the segments; ``checked_file`` their checksums; ``layout`` their names,
  ``partition.metadata``.
- ``segment`` batches in files, indexes and scans; ``recovery`` from a folder to an open log.
- ``storage`` all access to disks; ``tools`` checks and prints folders without opening them.
- ``compaction`` by key; ``erasure`` of single records; ``encryption`` of batches at rest.

Invariants: batches are dense (in a compacted log records are not), and never split over segments;
what is below ``recovery_point`` has been synced, its folder entries included; a batch is served
only if its checksum was right once since the log was opened, or if this process wrote it.

A :class:`~streamlog.log.log.PartitionLog` has one owner and is not thread-safe, except for what is
meant for a worker thread: ``SyncTicket.run``, ``Segment.verify`` and ``FileSlice``. It knows
nothing of high watermarks: a reader passes the offset below which it may read.
"""
