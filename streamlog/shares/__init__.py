"""Share groups (KIP-932) at the leader of a partition, which delivers its records to their members.

- ``share_partition`` a partition as a group reads it: which records a member acquires, locks, acknowledgements,
  over ``delivery``. Pure.
- ``share_sessions`` what each member fetches from this node. Pure.
- ``led_share`` one leadership of a share partition: takes the state over from the group's coordinator, reads records,
  saves what has changed; ``share_service`` all of them, for ``kafka``.

Invariants: a member is told of a record, or that an acknowledgement counts, only once the group's coordinator has
it in its log (``groups.shares``). So the next leader of the partition delivers nothing that was accepted or
rejected, counts each delivery that a member may have had, and loses no record. What only this leader
knows is who has a record, and until when: with another leader all locks are gone, and the members learn that by what
their acknowledgements are answered.
"""
