"""Whether a message is stored: what its headers ask for, duplicates, expectations, atomic batches,
limits, and the refusal where it is not."""
