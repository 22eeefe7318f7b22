"""From a stream's metadata to an open log on disk, and back: folders, opening, group commit,
checkpoints, deletion."""
