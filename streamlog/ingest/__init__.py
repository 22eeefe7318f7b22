"""NATS messages to sequenced appends; an ack when, and only when, what it answers is committed.

One read of the socket is one feed of the parser, then one append for each partition in it, then,
when the partition says so, one buffer of acks. A message costs no Python object, unless it has a
header that asks for something.

- ``frames`` (compiled) the NATS protocol into record runs; ``acks`` (compiled) the answers. Pure.
- ``sequencer`` with ``duplicates``: message ids and expectations; ``refusal`` why not; ``replies``
  packed reply subjects. Pure.
- ``window`` the sequencer's ids out of the log, after a restart.
- ``connection`` nats-py's connection, authentication, TLS and reconnection around our parser.
- ``subscriptions`` what is listened to; ``inlet`` one led partition; ``answers`` what goes back;
  ``room`` what may wait for a commit; ``outage`` is NATS there; ``source`` the service over all.
- ``publisher`` the other side, for the command line; ``servers`` how to connect.

Limits: ``IngestSection``. Where the disk is too slow for what comes we stop reading from NATS for a
while, then refuse. Bounded at all times: in-flight bytes, message ids, the frame that is being
read, the bytes that NATS has not taken yet.

Invariants: only a partition's leader listens to its subjects; nothing is acknowledged that is not
committed; a message that is not stored and asked for an answer gets a refusal at once.
"""
