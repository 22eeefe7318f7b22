"""What coordinators have in common, be it of groups or of transactions: a key belongs to one partition
of an internal stream, and the leader of that partition coordinates it (Kafka: CoordinatorRuntime).

- ``keys`` a key's partition; ``effects`` what a core wants done, and its clocks; ``deadlines``; ``replay``
  from the log back to what a core keeps. Pure.
- ``shard`` the shell of one leadership: appends, timers, and ``reply``, a response to come; ``loader``
  reads the log; ``led_shards`` all shards of a node, and which node has a key's.

Invariants: no client is told of what is not committed in the log; a shard appends in its own leader
epoch alone; what it says it knows is known once a record of its own has been committed that was
appended after the question.
"""
