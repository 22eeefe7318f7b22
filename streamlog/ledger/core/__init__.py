"""What ordering nodes have to agree on without talking: which blocks a stream is cut into. Pure.

- ``entry``             what a stream's record is to a ledger: ordinary, or marked as something else
- ``channel_config``    who may write and read, which nodes order, how blocks are cut
- ``signing``           Ed25519: of records, configurations and blocks
- ``channel_policy``    what a channel takes, at the endpoint and from the log
- ``cutter``            where a block ends
- ``block``             a block; ``encoding`` its canonical bytes and hashes
- ``chain``             how a chain begins, and what a block has to fit on
- ``consenter``         ``Consenter``: ``step(event) -> effects``, for a node that cuts
- ``channel_follower``  ``ChannelFollower``: the same, for a node that pulls blocks from its peers
- ``verifier``          of a chain's bytes

Invariant: a block follows from the genesis and the stream's records alone. No clock, no setting of
a node, no size of its reads and no restart has a part in it: what a node's timer brings about is a
marker in the stream (time-to-cut, TTC-X), which all nodes read in its place.

Sources: Androulaki et al., "Hyperledger Fabric" (EuroSys 2018), 4.2; the design document "A
Kafka-based Ordering Service for Fabric" (Christidis, 2016).
"""
