"""Which Kafka clients work with streamlog, and at what: each cell of the table is a program run.

``python -m compatibility`` starts three nodes, brings the clients from their registries into a
cache folder, has each of them do each thing, checks what came of it, and writes
``docs/compatibility.md``. A client is a folder in ``clients/``: ``peer.toml`` says where its
packages come from, and a program takes

    PROGRAM SERVERS VERB ARGUMENTS

with ``ARGUMENTS`` as JSON, and prints a JSON object a line:

- ``version``: ``{"version": "1.2.3"}``.
- ``consume {topic, partition, offset | time_ms, committed?}``: assigns itself the partition, reads
  from there, ``{"partition", "offset", "value"}`` for each record, until its standard input ends.
  With ``committed``, records of transactions only when these are committed.
- ``group {topic, group, client_id, count?, protocol?}``: reads as a member of the group, from the
  earliest record where nothing is committed, prints the same, and commits what it has printed. When
  its input ends, or after ``count`` records, of which it commits no more and no less, it leaves.
  With ``protocol`` ``consumer``, by the protocol of KIP-848.
- ``share {topic, group, client_id, release?}``: reads as a member of the share group, releases the
  first ``release`` records (0) and accepts all others; ``{"partition", "offset", "value",
  "deliveries", "accepted"}`` for each one whose answer counts, until its input ends.
- ``produce {topic, partition, codec, idempotent}``: each line of its input is a value;
  ``{"offset", "value"}`` for each one that is acknowledged, in any order (``null``: the client does
  not say where). At the end of its input it waits for the last one.
- ``transact {topic, partition, transactional_id}``: prints ``{}`` when it is ready. Each line of its
  input is ``{"op": "begin" | "commit" | "abort"}`` or ``{"op": "send", "values"}``, answered with
  ``{}`` once it is done: values are sent when all of them are acknowledged.
- ``admin``: each line of its input is a call ``{"op": ..., ...}``, answered with one line; see
  ``checks/admin.py``.
- ``dump {file}``: the client's own reading of a segment file, ``{"offset", "value"}`` a line.

``{"not_offered": WHY}`` is for what the client has no call for, ``{"error": TEXT}`` for a failure,
``{"note": TEXT}`` for how it does what it has no call of its own for.
"""
