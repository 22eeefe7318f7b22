"""Partitions' leaders, here or on another node, asked for what only they know."""
