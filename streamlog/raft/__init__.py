"""A quorum elects a leader and replicates the metadata log: pull-based Raft, as in KRaft. Pure.

- ``voters``      who may vote
- ``messages``    what members say to each other
- ``events``      what happens to a member, and the effects it wants
- ``quorum``      ``Raft``: ``step(event, now_ms) -> effects``, and its roles
- ``standing``    its epoch, vote, role and leader, and when it loses patience
- ``ballot``      its answers to those who stand for election
- ``campaign``    its own standing for one, ``election`` who was asked and what they said
- ``following``   the copying of the leader's log
- ``office``      what a leader does: ``leadership`` counts replicas, ``waiting`` keeps long polls

Invariants: one leader in an epoch; a leader has all that is committed; what is committed stays;
votes and epochs are durable before anybody hears of them; replicas count by what they have synced.
It knows no clock, disk or socket: whoever drives it carries out each step's effects in their order.

Sources: Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm"; Ongaro's
thesis, 3.10 (transfer), 4 (membership), 6.2 (check quorum), 9.6 (pre-vote); KIP-595, KIP-630,
KIP-853, KIP-996; KIP-101 (truncation by epoch).
"""
