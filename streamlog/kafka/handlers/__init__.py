"""Kafka's APIs: a function each, named after its API. A module has the APIs of one concept.

Translation only: a dict in, a dict out (Fetch and Produce: bytes in, pieces out).

The guards come in the same order everywhere: find the partition, check that this node leads it,
check the caller's leader epoch, act. A StreamlogError becomes Kafka's code by the table of
``wire.errors``.

- ``fetch``, ``produce`` the data; ``log_offsets`` offsets of a partition's log.
- ``topics`` and ``configs`` are administered; ``replicas`` where partitions are; ``metadata`` and ``api_versions`` what
  any client may ask first; ``quorum`` what nodes ask each other.
- ``groups`` members and offsets of groups, ``transactions`` of producers; ``coordinators`` finds the node that
  coordinates either.
- ``security`` logins, credentials, rules, quotas.
"""
