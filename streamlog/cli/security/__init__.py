"""``streamlog acl``, ``user``, ``quota`` and ``encryption``."""
