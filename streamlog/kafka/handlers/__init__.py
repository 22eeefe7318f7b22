"""Kafka's APIs: a function each, named after its API. A module has the APIs of one concept.

Translation only: a dict in, a dict out (Fetch and Produce: bytes in, pieces out).

The guards come in the same order everywhere: find the partition, check that this node leads it,
check the caller's leader epoch, act. A StreamlogError becomes Kafka's code by the table of
``wire.errors``.
"""
