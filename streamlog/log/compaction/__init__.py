"""Compaction by key: of each key the last record stays, below the high watermark. Blocking calls.

A *cleaning* reads what has been appended since the last one (the dirty part) and notes the last
offset of each key in a table of bounded size; if that is full, what comes after waits for the next
cleaning. Then it writes all segments up to there again, in groups that fit into one segment,
without the records that a later one of their key has replaced. The active segment is never touched.

- ``cleaning_plan`` what can be cleaned, whether it is worth it, and in which groups. Pure.
- ``batch_filter`` what becomes of one batch; ``batch_reader`` the batches of a segment.
- ``cleaned_file`` the new segment as it is written.
- ``cleaner`` one cleaning, step by step; ``segment_swap`` a new segment takes the place of old ones.
- ``crash_recovery`` what a crash has left of that, when the log is opened.

On disk, for the group that begins at offset 0::

    00000000000000000000.log.cleaned   is written, then synced
    00000000000000000000.log.swap      renamed: from here on it counts, whatever happens
    (the group's other files are removed)
    00000000000000000000.log           renamed again, over the group's first segment

Invariants: batches stay dense, offsets never change; what a record's value was is never taken back:
a tombstone goes only when all older records of its key are gone durably, ``delete_retention_ms``
after the first cleaning that passed it, and only while every replica is in sync: one that has
never seen it would keep the older value. A reader of an old segment goes on reading it.
"""
