"""Speaks the socket API to any node: what the command line, Spark and other nodes read with.

- ``connection``  one socket, one request at a time; versions are agreed when it opens
- ``cluster``     who leads what, a connection to each node that is asked, commands to any of them
- ``groups``      consumer groups and their coordinators, asked and changed from outside
- ``position``    where to begin: earliest, latest, an offset, a time
- ``reader``      the batches or records of one partition, in order, up to an end or for ever

Errors are those of ``streamlog.errors``. A reader follows a partition to its new leader and waits
for a node that is away, within its patience; it never skips or repeats a record.

Spark executors load this package: it needs neither a NATS client nor a server. It starts no task of
its own.
"""
