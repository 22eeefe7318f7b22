"""What is committed and who is in sync: arithmetic over offsets and times. Pure.

- ``progress`` one follower as its leader knows it; ``isr`` who is in sync, and what is proposed.
- ``leader`` the leader's view: from its own end and its followers' fetches to the high watermark.
- ``follower`` the follower's: where its log parts from the leader's, what it may show.

Invariants: the high watermark never falls; it never passes the end of any replica that is in sync
or may be by a proposal nobody has answered, the leader included (under ``sync=commit``: its synced
end); it stands still while fewer replicas are in sync than the stream wants.

It does not know logs, sockets or clocks: ``partition`` tells it offsets and acts on what it
answers.
"""
