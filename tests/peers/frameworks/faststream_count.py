"""FastStream: ``faststream_count.py SERVERS FOLDER`` sends each record of ``in`` to ``out``, with its key."""

import asyncio
import sys

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker, KafkaMessage

servers, _ = sys.argv[1:]
broker = KafkaBroker(servers.split(","))
app = FastStream(broker)
target = broker.publisher("out")


@broker.subscriber(
    "in", group_id="faststream", auto_offset_reset="earliest", ack_policy=AckPolicy.ACK
)
async def count(message: KafkaMessage) -> None:
    await target.publish(message.body, key=message.raw_message.key)


asyncio.run(app.run())
