"""Kafka consumer groups, the classic protocol: who reads what, and how far everybody has come.

A group belongs to one partition of the internal stream ``__consumer_offsets``; the leader of that
partition is its coordinator. What must outlive it is in the partition's log, under Kafka's own keys
and values: offsets, and each generation of a group with what it assigns to whom.

- ``records`` keys and values; ``partitioning`` which partition; ``subscription`` what members of
  type ``consumer`` want. Pure.
- ``coordinator`` the core of one partition: requests and ``now`` in, ``effects`` out. Its parts:
  ``joining``, ``membership``, ``rebalance`` (generations), ``commits`` (offsets), over a ``table``
  of ``group`` and ``member``, with ``deadlines``; ``requests`` what is asked and answered;
  ``replay`` from the log back to groups. Pure.
- ``shard`` the shell of one leadership: appends, timers; ``loading`` reads the log; ``reply`` an
  answer to come; ``offsets_stream`` how the stream is kept; ``service`` all of it, for ``server``.

Invariants: nobody is told of an assignment or a commit before it is committed in the log; a shard
appends in its own leader epoch alone, and answers OffsetFetch only after a record of its own has
been committed that was appended after the question, so that no committed offset is ever seen to go
back; no two members own a partition in one generation, as far as their leader assigns it to one.

Bounded at all times: groups, members, bytes, offsets and writes on their way (``GroupsSection``);
500 bytes for an offset are plenty, and a member takes a KiB beside what it has us keep.

Not here: transactions, and the newer protocol of KIP-848, which clients do not use unless offered.
"""
