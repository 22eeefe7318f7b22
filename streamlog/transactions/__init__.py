"""Transactions of Kafka's producers: which are open, in which partitions, and how each ends (KIP-98, KIP-890).

A transactional id belongs to one partition of the internal stream ``__transaction_state``; the leader of that
partition is its coordinator. What must outlive it is in the partition's log, under Kafka's own keys and values.

- ``transaction`` what is kept of a transactional id, and how that changes; ``records`` keys and values;
  ``replay`` from the log back. Pure.
- ``coordinator`` the core of one partition: ``requests`` and the time in, replies, records and markers out. Pure.
- ``state_topic`` the internal stream, and the shell of one leadership of one of its partitions; ``marker_sender``
  tells partitions how transactions end; ``service`` all of it, for ``kafka``.

Invariants: an id has one open transaction at most; what a producer of an earlier epoch asks for is refused; an end
that is in the log is completed, by this coordinator or the next one; a transaction is open no longer than its
time-out, while there is a coordinator.
"""
