"""JetStream's management API over NATS, for stock clients: requests in, JSON out.

Answered under ``$JS.<domain>.API.`` and, where the settings say so, under bare ``$JS.API.``: INFO,
STREAM.CREATE, UPDATE, INFO, NAMES, LIST, DELETE, PURGE, MSG.GET, and DIRECT.GET. Everything else
gets JetStream's own "bad request". Nodes share the requests through a queue group.

- ``api`` the service and its routes; ``streams`` the verbs about streams; ``messages`` reading one.
- ``stream_config`` JetStream's configuration and ours; ``stream_info`` what is answered about one.
- ``errors`` our errors as JetStream's numbers, and back.
- ``requests`` the other side: what the command line asks with.

What we cannot honour is refused by name, never dropped; what clients send at its default passes.
Replies are checked strictly by clients: ``type`` is exact, lists are not null, times end in ``Z``.

It decides nothing: ``metadata`` does. It does not take messages: ``ingest`` does. JetStream's
consumers cannot be served over a client's connection; Kafka's protocol is for reading.
"""
