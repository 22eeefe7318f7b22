"""JetStream's management API over NATS, for stock clients: requests in, JSON out.

Answered under ``$JS.<domain>.API.`` and, where the settings say so, under bare ``$JS.API.``: INFO,
STREAM.CREATE, UPDATE, INFO, NAMES, LIST, DELETE, PURGE, MSG.GET, LEADER.STEPDOWN, PEER.REMOVE,
META.LEADER.STEPDOWN, and DIRECT.GET. Everything else gets JetStream's own "bad request".

- ``api`` the service; ``verbs`` the table of verbs; ``streams`` and ``cluster`` what they do.
- ``leaders`` the leaders of all partitions: ``leader`` what a node answers as one, ``nodes`` how
  another is asked, ``partition_state`` and ``messages`` what it answers.
- ``succession`` who is to lead or keep a partition instead.
- ``stream_config`` JetStream's configuration and ours; ``stream_info`` what is answered about one.
- ``fields`` of a request; ``errors`` our errors as JetStream's numbers, and back.
- ``requests`` the other side: what the command line asks with.

Any node answers, in a queue group, while it holds the lease: a node that the controller does not
hear leaves requests to others. What is decided is asked of the controller by ``metadata``. What is
stored is told by the leader alone, which a node asks over NATS under ``$JS.<domain>.NODE.``; there
is no answer from a follower, since it may be behind. A description is of all that was decided
before it was asked for, at whichever node, unless there is no controller.

What we cannot honour is refused by name, never dropped; what clients send at its default passes.
Replies are checked strictly by clients: ``type`` is exact, lists are not null, times end in ``Z``.

It decides nothing: ``metadata`` does. It does not take messages: ``ingest`` does. JetStream's
consumers cannot be served over a client's connection; Kafka's protocol is for reading.
"""
