"""``streamlog group``: where consumer groups are in their streams, and who is in them.

Every command asks any node of ``--bootstrap-server`` for the group's coordinator, and that for the
rest, in Kafka's own requests. What a group committed is changed only while it has no members, and never
without being shown first.

``commands`` has them, ``reset`` the longest of them; ``client`` is how they ask.
"""

from streamlog.cli.group.commands import app

__all__ = ["app"]
