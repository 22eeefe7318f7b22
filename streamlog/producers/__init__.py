"""What a partition knows of the producers that number their batches (KIP-98). Pure.

- ``sequence`` numbers that wrap; ``producer`` one producer: its epoch and its last batches;
  ``table`` all of a partition's, in bounded memory.

Invariant: a table is a function of the log alone, so leader and followers have the same, and a new
leader goes on where the old one ended.
"""
