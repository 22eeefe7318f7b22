"""Streams read from segment files: a node's folder, a copy of it, or an object store."""
