"""Whether a message is stored: what its headers ask for, duplicates, expectations, batches, limits, and the refusal
where it is not. Rules about schedules are in ``ingest.schedules``. The size of a message is checked before, where it
is read (``ingest/frames.pyx``).

- ``publish_headers`` what a message may ask for; ``refusal`` why it is not stored.
- ``deduplicator`` decides, over a ``duplicate_window``; ``publish_checks`` is its short cut, compiled.
- ``expectations`` what a publisher expects of the log; ``subject_sequences`` which sequence a subject has by now, in
  the log or in the run that is gathered; ``log_records`` reads single records.
- ``counters``, ``rollups``, ``message_ttl``, ``discard_new`` what streams may be set to do with messages.
- ``batches`` atomic batches and fast batches.
"""
