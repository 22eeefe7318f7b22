"""Fetch sessions (KIP-227): the partitions of a caller, and which sessions a node keeps."""
