"""Who decides: functions that look at the image and return records, or refuse. Pure.

The records are logged, then applied; a decision changes nothing by itself. ``decide`` takes a
command, ``next_moves`` says what is to be done unasked; ``batches`` cuts a decision for the log.

- ``partition_changes`` a decision in the making: every change of a partition goes through it, and so do the
  rules of leader and partition epochs; ``decision`` what comes out.
- ``election`` who leads, who is in sync while nodes are away; ``isr`` what leaders propose;
  ``placement`` where replicas go; ``reassignment`` how they get there.
- ``bootstrap`` what a metadata log begins with; ``streams``, ``node_lifecycle`` the life of each;
  ``clients`` their access rules, quotas, credentials and producer ids.

Invariants: a leader is in the ISR, and every ISR within the replicas; a leader comes out of the ISR
unless the stream or an operator allows another; who is elected is neither fenced nor without a
session; a new registration of a node never goes on in an epoch of the one before.
"""

from streamlog.metadata.controller.bootstrap import begin_log
from streamlog.metadata.controller.clients import alter_quota
from streamlog.metadata.controller.decide import decide
from streamlog.metadata.controller.decision import Decision, batches
from streamlog.metadata.controller.drain import next_moves
from streamlog.metadata.controller.streams import create_stream, delete_stream, update_stream

__all__ = [
    "Decision",
    "alter_quota",
    "batches",
    "begin_log",
    "create_stream",
    "decide",
    "delete_stream",
    "next_moves",
    "update_stream",
]
