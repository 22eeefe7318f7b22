"""The client once more, for those who have no event loop: Spark's workers, one thread each.

- ``connection``  one socket, which may be TLS; a fetch may be sent before the last is decoded
- ``cluster``     who leads what, offsets and sizes, a connection to each node that is asked
- ``patience``    asking again: a leader that moves or restarts is back in a moment

It speaks of the same values and raises the same errors as ``streamlog.client``, knows no asyncio,
and is not safe to share between threads. Constructors open nothing.
"""
