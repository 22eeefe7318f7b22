"""The NATS frame parser: compiled where it was built, else its plain twin.

::

    parser = FrameParser(frame_bytes_max=limit)
    parser.bind(sid, inflow)
    for inflow in parser.feed(data):          # whatever one read of the socket brought
        append(inflow.run, inflow.take_replies())
    for name, argument in parser.take_controls():
        ...

A message becomes a record: its payload the value, its headers the headers, after ``subject`` and,
where the reply is not an inbox, ``reply``. The first header ``Streamlog-Key`` is the key as well.
Only a message with a header that asks for something (``Nats-*``, ``Streamlog-Ack``) costs Python
objects: ``admit`` decides about it.
"""

from typing import TYPE_CHECKING

from streamlog.record import fallback

if TYPE_CHECKING:
    from streamlog.ingest._frames_plain import FrameParser, Inflow
else:
    try:
        from streamlog.ingest._frames import FrameParser, Inflow
    except ImportError:
        fallback.warn()
        from streamlog.ingest._frames_plain import FrameParser, Inflow

__all__ = ["FrameParser", "Inflow"]
