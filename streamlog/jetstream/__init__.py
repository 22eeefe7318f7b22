"""JetStream's management API over NATS, for stock clients: requests in, JSON out.

Answered under ``$JS.<domain>.API.`` and, where the settings say so, under bare ``$JS.API.``: INFO,
STREAM.CREATE, UPDATE, INFO, NAMES, LIST, DELETE, PURGE, MSG.GET, LEADER.STEPDOWN, PEER.REMOVE,
META.LEADER.STEPDOWN, and DIRECT.GET. Everything else gets JetStream's own "bad request".

- ``api`` the service; ``dispatcher`` from a verb to what answers it.
- ``verbs`` streams, cluster, account; ``messages`` read, deleted, purged, published again.
- ``requests`` the JSON of each request; ``errors`` our errors as JetStream's numbers, and back.
- ``leaders`` partitions' leaders, here or on another node; ``auth`` who asks, and what they may see.
- ``client`` the other side: what the command line asks with.

Any node answers, in a queue group, while it holds the lease. What is decided is asked of the
controller by ``metadata``. What is stored is answered by the leader alone, which a node asks over
NATS under ``$JS.<domain>.NODE.``: a follower may be behind. A description includes all that was
decided before it was asked for, at whichever node, unless there is no controller.

What we cannot honour is refused by name, never dropped; what clients send at its default passes.
Clients check replies strictly: ``type`` is exact, lists are not null, times end in ``Z``.

It decides nothing: ``metadata`` does. It does not take messages: ``ingest`` does.
"""
