"""Owns each local partition: the only writer of its log and of its in-sync state.

- ``state`` the heart, without asyncio: append, sync, high watermark, acknowledgements in order
  (``pending``); ``following`` the follower's side of it.
- ``owner`` one partition as others see it: append, read, watch, purge; ``syncing`` when its log is
  synced; ``watchers`` who waits for a change; ``statistics`` what is told.
- ``reader`` what is read is checked first, in a worker thread.
- ``replica`` takes what a leader answers; ``fetcher`` follows one leader, in a ``fetch_session``,
  ``fetchers`` all; ``isr_changes`` asks the controller for other in-sync replicas, ``complaints``
  reports leaders that are away; ``replication`` these together.
- ``erasing`` what is erased, and will be: ``surplus`` of a subject, ``expiry`` by the message's own
  word, looked for by ``trimming``; ``shortening`` a log's beginning goes; ``awaiting`` replicas.
- ``compaction`` which log is compacted when; ``cleaning_state`` how one stands towards it;
  ``scrubbing`` reads all logs again for what is damaged; ``doubts`` when a leader looks at once.
- ``disk_space`` whether their disk has room; while it has none nothing is written, others lead.
- ``flusher`` group commit: worker threads, one sync in flight per log, no task per partition.
- ``folder`` ``<data_dir>/streams/<stream>/<partition>/`` and whose it is (``partition.metadata``);
  ``disposal`` how it goes.
- ``checkpoints`` the four files of offsets; ``opening`` from a folder to a log, ``opener`` of many.
- ``registry`` all of them: does as the image says, what takes time by ``converging``; ``upkeep``
  checkpoints, retention, interval syncs; ``surroundings`` what is needed of the rest of the node.

Invariants: ``log_start_offset <= high_watermark <= log_end_offset``; an acknowledgement is
committed once, in order, after its records are below the high watermark and while the node leads
and holds its lease, or failed once; a log start is durable before a file below it goes and before
it is reported or acknowledged; a follower's log is cut only where its leader's goes on otherwise,
and not below the high watermark while it is in sync; a failing disk takes its partition offline.

State is touched on the event loop alone; worker threads get tickets (a sync, a check, a cut, a
deletion). It does not know NATS nor sockets: ``ingest`` appends, ``server`` reads.
"""
