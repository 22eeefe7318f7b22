"""Whether a message is stored: what its headers ask for, duplicates, expectations, batches (``batches``),
limits, and the refusal where it is not. Rules about schedules are in ``ingest.schedules``. The size of a message is
checked before, where it is read (``ingest/frames.pyx``)."""
