"""streamlog as its tests, benchmarks and compatibility checks run it: one harness for all of them.

A node process (``NodeProcess``), a cluster of them (``Cluster``, ``Dev``), and what both stand on:
server processes that end with the one that started them, and ports that are handed out once.
What tells nodes apart (TLS, logins, encryption, faults) is their configuration.
A node inside the process of a test is in ``tests``, since it needs pytest.
"""
