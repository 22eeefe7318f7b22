"""``streamlog backup``."""
