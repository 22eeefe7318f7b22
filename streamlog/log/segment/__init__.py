"""Segments: runs of batches in files named by their base offsets, their sparse indexes, and
what finds a batch in them by offset or by time."""
