"""Groups: their members, their offsets, and what members of share groups fetch.

- ``classic_groups`` groups of the classic protocol, and what is the same for groups of all kinds: ListGroups,
  DeleteGroups.
- ``consumer_groups`` groups of the consumer protocol (KIP-848).
- ``share_groups`` share groups (KIP-932), and where they go on; ``share_fetch`` ShareFetch, ShareAcknowledge.
- ``offsets`` how far consumer groups have come: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete.
"""
