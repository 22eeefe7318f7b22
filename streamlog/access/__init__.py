"""Who asks, and how that is proved. Pure: bytes, keys and the time come in, a verdict goes out.

Nothing here reads a file, a socket or a clock.

Read ``principal`` and ``session`` first: what every request is answered with in mind.
"""
