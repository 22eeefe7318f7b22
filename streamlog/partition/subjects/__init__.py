"""Which message of a partition has which subject: for lookups, counts and expectations by subject.

It costs nothing where it is not asked for. The first question has the index read from the log, in a worker
thread; from then on each question reads what has come since. It lives in memory alone, as the log
alone says what there is: an index that is in doubt is dropped, and read again.

- ``index_build``: record batches into the index (``record.compiled.subjects``, which is pure); what a control
  batch takes away, an ``Erasing`` says.
- ``subject_index``: one partition's index, its life: made, followed, cut as the log is, dropped.
- ``index_cache``: all indexes of a node: the memory that they share, and which of them stay.

Invariants: an index has exactly the messages of ``[log start, next_offset)`` that are neither
erased nor compacted away; it is changed on the event loop, or by one thread while no other has
it.
"""
