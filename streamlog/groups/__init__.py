"""Kafka consumer groups, classic and of KIP-848: who reads what, and how far each group has come.

A group belongs to one partition of the internal stream ``__consumer_offsets``; the leader of that
partition is its coordinator. What must outlive it is in the partition's log, under Kafka's own keys
and values: offsets, and each generation of a group with what it assigns to whom.

- ``service`` all of it, for ``kafka`` and ``control``; ``offsets_topic`` the internal stream, and the shell of one
  leadership of one of its partitions. Both are what ``coordination`` makes of them.
- ``coordinator`` the core of one partition: ``requests`` and the time in, replies and records to write
  out. Pure. Its parts:

  - ``membership`` who is a member: the classic protocol with its rebalances, the consumer protocol (KIP-848), and the
    change from one to the other; ``shares`` share groups (KIP-932).
  - ``offsets`` commits, those of transactions too, fetches, deletion, expiration, and consumer lag.

- ``group_table`` what these parts share: the groups, their deadlines, the effects that are gathered.
- ``group`` one group: members of the classic protocol, generation, offsets; ``consumer_group`` what the records of a
  group of the consumer protocol say, and how a member comes to its part; ``assignors`` who is to have what;
  ``subscribed_topics`` names and expressions. Pure.
- ``records`` keys and values of all that is in the log; ``replay`` from there back to groups. Pure.

Invariants: no client is told of an assignment or a commit before it is committed in the log; a shard
appends in its own leader epoch alone, and answers OffsetFetch only after a record of its own has
been committed that was appended after the question, so that no committed offset is ever seen to go
back; no two members own a partition in one generation, as far as their leader assigns it to one.

Bounded at all times: groups, members, bytes, offsets and writes on their way (``GroupsSection``);
500 bytes for an offset are plenty, and a member takes a KiB beside what it has us keep.
"""
