"""``streamlog group``: where consumer groups are in their streams, and who is in them.

Every command asks any node of ``--bootstrap-server`` for the group's coordinator, and that for the
rest, in Kafka's own requests. What a group committed is changed only while nobody is in it, and never
without being shown first.

``commands`` lists them; ``client`` is how they ask; ``lag`` says what a group lags behind,
``target`` where it is to go, and ``plan`` what that comes to in each partition.
"""

from streamlog.cli.group.commands import app

__all__ = ["app"]
