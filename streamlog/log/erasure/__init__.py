"""What of a log is erased: records that readers of single messages do not find any more.

An erasure is a batch of the log itself (``record.erasure``), so it is replicated, ordered and kept
as all else. Here is what all erasures of one log come to, so that no reader has to look for them.

- ``erasures`` the offsets that are erased, as far as is committed, and those that wait. Pure.
- ``erasures_file`` the same as a small file beside the log, written before the checkpoint of the
  recovery point passes an erasure: a start reads the log from there on, which it has to anyway.

``log.control_load`` puts both together when the log is opened.

Invariants: an erasure erases only what is before it, and counts from its commit on; what is erased
here is erased by a batch of this very log.
"""
