"""What ordering nodes have to agree upon without talking: which blocks a stream is cut into. Pure.

- ``entry``           what a stream's record is to a ledger: ordinary, or marked as something else
- ``channel_config``  who may write and read, which nodes order, how blocks are cut
- ``signing``         Ed25519: of records, configurations and blocks
- ``admission``       what a channel takes, at the door and out of the log
- ``cutter``          where a block ends
- ``block``           a block; ``encoding`` its canonical bytes and hashes
- ``chain``           what a block has to fit upon
- ``genesis``         how a chain begins
- ``consenter``       ``Consenter``: ``step(event) -> effects``, for a node that cuts
- ``offline``         the same for a whole stream at once; ``verifier`` of a chain's bytes

Invariant: a block follows from the genesis and the stream's records alone. No clock, no setting of
a node, no size of its reads and no restart has a part in it: what a node's timer brings about is a
marker in the stream (time-to-cut, TTC-X), which all nodes read in its place.

Sources: Androulaki et al., "Hyperledger Fabric" (EuroSys 2018), 4.2; the design document "A
Kafka-based Ordering Service for Fabric" (Christidis, 2016).
"""
