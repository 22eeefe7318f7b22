"""Bytes to record batches (Kafka's record batch v2) and back. Pure; never knows a file.

The hot loops are in ``compiled``.
"""
