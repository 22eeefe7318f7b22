"""What is done now and then for all partitions: retention, checkpoints, compaction, scrub,
auto-pause, rotation of keys."""
