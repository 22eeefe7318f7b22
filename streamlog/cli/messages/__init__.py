"""``streamlog publish``, ``read`` and ``log``: messages in, records out, and segment files as they lie."""
