"""``streamlog stream``: made, listed, changed, moved, purged and removed."""
