"""The transactions in a log: which are open, which were aborted, and up to where all is decided.

Markers and records are batches of the log itself (``record.transaction_marker``), so all replicas have the same.
Here is what they come to, so that no reader has to look for them. An abort counts as an erasure of the
transaction's records (``log.erasure``), and each marker as a message that is none.

- ``transactions`` open transactions, the last stable offset, the aborted ones (Kafka's ProducerStateManager, as far as
  it is about transactions, and its TransactionIndex). Pure.
- ``transactions_file`` the same as a small file beside the log. It is written before the checkpoint of the recovery
  point passes a transactional batch: a start reads the log from there on, which it has to anyway.

``log.control_batches`` takes note of batches as they come into the log, ``log.control_load`` of those that a log has
that is opened.

Invariants: the last stable offset is never above the first record of a transaction whose marker is not
committed; a log that is cut knows again of each transaction that the cut has opened again.
"""
