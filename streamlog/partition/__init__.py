"""Owns each local partition: the only writer of its log and of its in-sync state.

- ``state`` the heart, without asyncio: append, sync, high watermark, acknowledgements in order.
- ``owner`` one partition as others see it: append, read, watch, purge.
- ``reader`` what is read is checked first, in a worker thread; ``statistics`` what is told.
- ``flusher`` group commit: worker threads, one sync in flight per log, no task per partition.
- ``folder`` ``<data_dir>/streams/<stream>/<partition>/`` and whose it is (``partition.metadata``).
- ``checkpoints`` the three files of offsets; ``opening`` from a folder to a running partition.
- ``registry`` all of them: follows the image; ``upkeep`` checkpoints, retention, interval syncs.

Invariants: ``log_start_offset <= high_watermark <= log_end_offset``; an acknowledgement is
committed once, in order, after its records are below the high watermark, or failed once; a disk
that fails takes its partition offline, others go on, and readers are served up to the high
watermark.

State is touched on the event loop alone; worker threads get tickets (a sync, a check, a deletion).
It does not know NATS nor sockets: ``ingest`` appends, ``server`` reads.
"""
