"""What is committed: arithmetic over offsets. Pure.

``leader`` is the leader's view: from its own end and its followers' fetches to the high watermark.

Invariants: the high watermark never falls; it never passes the end of any in-sync replica, the
leader included. With one replica it is the leader's own (under ``sync=commit``: synced) end.

It does not know logs, sockets or clocks: ``partition`` tells it offsets and acts on what it
answers.
"""
