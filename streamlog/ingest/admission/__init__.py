"""Whether a message is stored: what its headers ask for, duplicates, expectations, atomic batches,
limits, and the refusal where it is not. The size of a message is checked before, where it is read
(``ingest/frames.pyx``)."""
