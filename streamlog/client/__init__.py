"""Speaks the socket API to any node: the command line, Spark, the ledger and other nodes use it.

- ``protocol``, ``topology``, ``retry``  the core, without I/O: frames, versions, login; nodes and
  leaders; what is tried again
- ``connection``, ``cluster``            its shell on an event loop: one socket; all nodes
- ``blocking``                           its shell without one: both, for Spark's workers
- ``security``, ``tls_stream``           TLS and logins
- ``reader``, ``position``               the batches or records of one partition, from where on

Errors are those of ``streamlog.errors``. A reader follows a partition to its new leader and waits
for a node that is away, within its patience; it never skips or repeats a record.

Spark executors load this package: it needs neither a NATS client nor a server. It starts no task of
its own.
"""
