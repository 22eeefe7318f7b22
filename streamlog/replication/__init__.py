"""What is committed, who is in sync, and what idempotent producers have sent. Pure.

- ``leader`` the leader's view: from its own end and its followers' fetches to the high watermark.
- ``progress`` one follower as its leader knows it; ``isr`` the in-sync replicas: when they
  shrink and expand, and proposed changes.
- ``divergence`` where a follower's log diverges from its leader's; what it may serve.
- ``producer_table``, ``producer_state``: KIP-98's ids, epochs and sequences.

Invariants: the high watermark never falls; it never passes the end of any replica that is in sync,
or may be by a proposal without an answer, the leader included (under ``sync=commit``: its synced
end); it does not move while fewer replicas are in sync than the stream's ``min_isr``.

It does not know logs, sockets or clocks: ``partition`` passes offsets in and acts on the results.
"""
