"""JetStream's management API over NATS, for stock clients: requests in, JSON out.

Answered under ``$JS.<domain>.API.`` and, where the settings say so, under bare ``$JS.API.``: INFO,
STREAM.CREATE, UPDATE, INFO, NAMES, LIST, DELETE, PURGE, MSG.GET, LEADER.STEPDOWN, PEER.REMOVE,
META.LEADER.STEPDOWN, and DIRECT.GET. Everything else gets JetStream's own "bad request".

- ``api`` the service; ``dispatcher`` from a verb to what answers it.
- ``verbs`` streams, cluster, account, messages: each has ``control`` do it, and translates.
- ``direct_get`` DIRECT.GET, answered by any replica in sync; ``republisher`` what is published again.
- ``requests`` the JSON of each request; ``errors`` our errors as JetStream's numbers, and back.
- ``auth`` who asks, and what they may see.
- ``connection``, ``request_queue`` requests come in, wait for their turn, and are answered.
- ``advisories`` events for those who watch.

Any node answers, in a queue group, while it holds the lease. A description includes all that was
decided before it was asked for, at whichever node, unless there is no controller.

What we cannot honour is refused by name, never dropped; what clients send at its default passes.
Clients check replies strictly: ``type`` is exact, lists are not null, times end in ``Z``.

It decides nothing: ``control`` and ``metadata`` do. It does not take messages: ``ingest`` does.
"""
