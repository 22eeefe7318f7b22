"""Share groups (KIP-932) at the leader of a partition, which delivers its records to their members.

- ``share_partition`` a partition as a group reads it: which records a member acquires, locks, acknowledgements,
  over ``delivery``. Pure.
- ``share_sessions`` what each member fetches from this node. Pure.
"""
