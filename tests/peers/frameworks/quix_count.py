"""Quix Streams: ``quix_count.py SERVERS FOLDER`` counts the records of each key of ``in`` into ``out``."""

import sys

from quixstreams import Application

servers, folder = sys.argv[1:]
app = Application(
    broker_address=servers,
    consumer_group="quix",
    auto_offset_reset="earliest",
    state_dir=folder,
    commit_interval=0.2,
)
rows = app.dataframe(app.topic("in", key_deserializer="str", value_deserializer="str"))
rows = rows.apply(lambda _, state: _counted(state), stateful=True)
rows.to_topic(app.topic("out", key_serializer="str", value_serializer="str"))


def _counted(state):
    count = state.get("count", 0) + 1
    state.set("count", count)
    return str(count)


app.run()
