"""The metadata as an immutable image, the records that change it, deltas, snapshots, and the level
of features that all nodes understand. Pure."""
