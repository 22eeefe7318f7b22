"""NATS messages to sequenced appends; an ack when, and only when, what it answers is committed.

One read of the socket is one feed of the parser, then one append for each partition in it, then,
when the partition says so, one buffer of acks. A message costs no Python object, unless it has a
header that asks for something.

- ``frames`` (compiled) the NATS protocol into record runs; ``acks`` (compiled) the answers. Pure.
- ``sequencer`` with ``duplicates``: message ids and expectations; ``refusal`` why not; ``replies``
  packed reply subjects. Pure.
- ``window`` the sequencer's ids out of the log, at each new leadership; ``openings`` when to;
  ``standby`` ahead of time, where another leads; ``snapshots`` keeps them in files, ``snapshot``
  is what such a file holds.
- ``connection`` nats-py's connection, authentication, TLS and reconnection around our parser;
  ``subscriptions`` what is listened to on it; ``listening`` both, for as long as they are wanted.
- ``inlet`` one leadership of a partition; ``answers`` what
  goes back; ``repeats`` retries of what is not committed; ``sieve`` who needs no replicas; ``room``
  what may wait for a commit; ``outage`` is NATS there; ``source`` the service over all.
- ``publisher`` the other side, for the command line; ``servers`` how to connect.
- ``burst``, ``pace`` and ``steady`` publish to measure, over a ``raw`` connection (``ack_reader``).

Limits: ``IngestSection``. Where the disk is too slow for what comes we stop reading from NATS for a
while, then refuse. Bounded at all times: in-flight bytes, message ids, the frame that is being
read, the bytes that NATS has not taken yet.

Invariants: only a partition's leader listens to its subjects, while it holds the lease, and only
when it knows the ids in its log; nothing is acknowledged that is not committed; a message that is
not stored and asked for an answer gets a refusal at once.
"""
