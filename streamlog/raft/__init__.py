"""A quorum elects a leader and replicates the metadata log: pull-based Raft, as in KRaft. Pure.

- ``node``            ``RaftNode``: ``step(event, now_ms) -> effects``, and its roles
- ``events``          what happens to a member, and the effects it wants
- ``messages``        what members send to each other; ``voters`` who may vote
- ``election_state``  epoch, vote, role, leader, the election timeout; answers to candidates
- ``candidate``       its own candidacy: the rounds of an election, and the votes
- ``follower``        copies the leader's log
- ``leader``          serves fetches, and holds them until there is something to send;
  ``replica_tracker`` counts replicas and finds the committed offset

Invariants: one leader in an epoch; a leader has all that is committed; what is committed stays;
votes and epochs are durable before they are sent; replicas count by what they have synced. The core
knows no clock, disk or socket: ``metadata.quorum`` carries out each step's effects in their order.

Sources: Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm"; Ongaro's
thesis, 3.10 (transfer), 4 (membership), 6.2 (check quorum), 9.6 (pre-vote); KIP-595, KIP-630,
KIP-853, KIP-996; KIP-101 (truncation by epoch).
"""
