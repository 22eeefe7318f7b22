"""The messages of a stream, as NATS messages: found by sequence, time or subject, read in order,
published, purged and deleted.
"""
