"""Bytes to record batches (Kafka's record batch v2) and back. Pure; never knows a file.

The hot loops are compiled; each has a twin in plain Python that takes over, with one warning, where
there was no compiler, and that property tests hold it to.
"""
