"""NATS messages to sequenced appends; an ack when, and only when, what it answers is committed.

One read of the socket is one feed of the parser, then one append for each partition in it, then,
when the partition says so, one buffer of acks. Only a header that asks costs a Python object.

- ``frames`` (compiled) the NATS protocol into record runs; ``acks`` (compiled) the answers. Pure.
- ``envelope`` what Liftbridge's clients put around a message, in ``protobuf``; ``opening`` what it
  is to a stream, ``addresses`` where its answers go. Pure.
- ``sequencer`` with ``duplicates``: ``publish_headers``, ``expectations``, ``lifetimes``,
  ``rollups``, what is ``unhonoured``; a ``verdict``; ``refusal`` why not; ``replies`` packed. Pure.
- ``batches``, of which each is an ``atomic_batch``: what is stored together or not at all; pure.
  ``batching`` stores them, ``staging`` bounds them. ``advisory`` the form of JetStream's events.
- ``window`` the sequencer's ids out of the log, at each new leadership; ``openings`` when to;
  ``standby`` ahead of time, where another leads; ``snapshots`` keeps them in files, ``snapshot``
  is what such a file holds.
- ``connection`` nats-py's connection, authentication, TLS and reconnection around our parser;
  ``subscriptions`` what is listened to on it; ``listening`` both, for as long as they are wanted.
- ``inlet`` one leadership of a partition, ``pending_acks`` who waits, ``rolling`` what messages
  have go; ``spreading`` those by hash; ``answers`` what goes back, ``awaited`` one by one;
  ``sieve`` who needs no replicas; ``bounds`` what fits, by a ``tally``; ``room`` what may wait;
  ``outage`` is NATS there; ``source`` all.
- ``publisher`` the other side; ``servers`` how to connect; ``burst``, ``pace`` and ``steady``
  publish to measure, over a ``raw`` connection (``ack_reader``).

Limits: ``IngestSection``. Where the disk is too slow we stop reading from NATS for a while, then
refuse. Bounded: in-flight bytes, message ids, the frame under way, what NATS has not taken yet.

Invariants: only a partition's leader takes its messages, while it holds the lease, and only
when it knows the ids in its log; nothing is acknowledged that is not committed; a message that is
not stored and asked for an answer gets a refusal at once.
"""
