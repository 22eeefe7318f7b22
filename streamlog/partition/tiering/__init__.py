"""A partition of a tiered stream (KIP-405): what is of it in the object store, and how it gets there.

- ``tiered_log``: both parts of the log, read as one.
- ``segment_history``: what a segment's object says of its producers.
- ``cold_reads``: segments on their way back, for fetches that wait for them.
- ``tier_manager``: the leader's work: uploads, manifests, retention, deletion.

Words. The log start offset is where the partition begins; the local log start offset, where its log on this node does;
the tiered end offset, up to where all is in the store. Invariant: log start <= local log start <= tiered end, unless
nothing of the partition was ever in the store. The metadata quorum holds log start and tiered end; the local log start
is durable on each replica, and followers have their leader's.
"""
