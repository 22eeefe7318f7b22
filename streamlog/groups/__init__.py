"""Kafka consumer groups, classic and of KIP-848: who reads what, and how far each group has come.

A group belongs to one partition of the internal stream ``__consumer_offsets``; the leader of that
partition is its coordinator. What must outlive it is in the partition's log, under Kafka's own keys
and values: offsets, and each generation of a group with what it assigns to whom.

- ``offsets_topic_config`` the internal stream; ``records`` its keys and values.
- ``coordinator`` the core of one partition: ``requests`` and the time in, replies and records to write
  out. Its parts: ``membership`` (JoinGroup to LeaveGroup), ``rebalance`` (generations), ``offset_commits``
  (with ``transactional_offsets``, which count once a transaction is committed) and ``offset_expiration``, over a
  ``group_table``; ``group`` one group and its members; ``replay`` from the log back to groups. Pure.
- ``consumer_group`` a group of the consumer protocol (KIP-848): what its records say, and how a member
  comes to its part; ``consumer_group_records`` these records; ``assignors`` who is to have what;
  ``consumer_membership`` heartbeats, epochs, fencing; ``subscribed_topics`` names and expressions;
  ``classic_members`` classic members in such groups, and the change from one kind to the other. Pure.
- ``offsets_topic`` the shell of one leadership; ``service`` all of it, for ``kafka``. Both are what
  ``coordination`` makes of them.

Invariants: no client is told of an assignment or a commit before it is committed in the log; a shard
appends in its own leader epoch alone, and answers OffsetFetch only after a record of its own has
been committed that was appended after the question, so that no committed offset is ever seen to go
back; no two members own a partition in one generation, as far as their leader assigns it to one.

Bounded at all times: groups, members, bytes, offsets and writes on their way (``GroupsSection``);
500 bytes for an offset are plenty, and a member takes a KiB beside what it has us keep.

- ``shares`` share groups (KIP-932).
"""
