"""Blocks on disk: the folder of a node, the log of a channel's blocks, and its chain read offline."""
