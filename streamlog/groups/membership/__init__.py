"""Who is a member of a group, and what it is assigned: a module for each protocol that members speak. Pure.

- ``classic_membership`` the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and rebalances.
- ``consumer_membership`` the consumer protocol (KIP-848): ConsumerGroupHeartbeat, epochs, fencing.
- ``migration`` classic members in groups of the consumer protocol, and the change from one kind to the other.

Share groups have the heartbeats and epochs of the consumer protocol: ``groups.shares.share_membership``.
"""
