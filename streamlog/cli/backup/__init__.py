"""``streamlog backup`` and ``streamlog restore``."""
