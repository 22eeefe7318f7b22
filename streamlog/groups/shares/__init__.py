"""Share groups (KIP-932) at their coordinator: members, assignment, and what is kept of each share partition.

- ``share_group`` a share group; its records in ``__consumer_offsets`` are in ``groups.records``, and which members
  read which partitions in ``groups.assignors``. ``share_group_config`` its settings.
- ``share_membership`` heartbeats and epochs, over those of consumer groups; ``share_states`` what the leaders
  of share partitions have kept here, and offsets that administrators set. Pure.

``streamlog.shares`` has the other side: the leader of a partition, which delivers its records to members.
"""
