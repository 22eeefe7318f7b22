"""The ledger: blocks, hash-chained, that any number of ordering nodes cut alike out of one stream.

The stream's log is a total order. Nodes that read it and cut by the same rules make the same blocks
with no word between them (the design of Hyperledger Fabric's Kafka orderer). ``core`` decides, and
is pure; what is beside it reads the stream, keeps the blocks and serves them.

Nothing else of streamlog imports this package but ``cli``: a ledger is a process of its own, and a
client of the cluster.
"""
