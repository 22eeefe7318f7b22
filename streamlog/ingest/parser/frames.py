"""The NATS frame parser, compiled.

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
objects, for ``admit`` decides about it; and one that begins as Liftbridge's envelope does, for
``open_envelope`` looks into it.

A sid may be bound to a ``Partitioner`` instead, which chooses among the inflows of several partitions.
"""

from streamlog.ingest.parser._collector import RecordCollector
from streamlog.ingest.parser._frames import FrameParser
from streamlog.ingest.parser._partitioner import Partitioner

__all__ = ["FrameParser", "Partitioner", "RecordCollector"]
