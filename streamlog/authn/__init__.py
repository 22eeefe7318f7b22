"""Who asks, how that is proved, and what they may do. Pure: bytes, keys and the time come in, a
verdict goes out.

Nothing here reads a file, a socket or a clock.

Read ``principal`` and ``session`` first: what every request is answered with in mind. ``rules``,
``rulebook`` and ``authorizer`` say what a principal may do; ``filters`` which rules are meant.
"""
