"""Faust: ``faust_count.py SERVERS FOLDER`` counts the records of each key of ``in`` into ``out``."""

import sys

import faust

servers, folder = sys.argv[1:]
app = faust.App(
    "faust",
    broker=[f"kafka://{it}" for it in servers.split(",")],
    datadir=folder,
    store="memory://",
    topic_partitions=4,
    topic_allow_declare=True,
    broker_commit_interval=0.2,
    broker_session_timeout=10,
    broker_heartbeat_interval=2,
    web_enabled=False,
    key_serializer="raw",
    value_serializer="raw",
)
source = app.topic("in", key_type=bytes, value_type=bytes)
target = app.topic("out", key_type=bytes, value_type=bytes)
counts = app.Table("counts", default=int, partitions=4, key_type=str, value_type=int)


@app.agent(source)
async def count(stream):
    async for key, _ in stream.items():  # noqa: PERF102 (of Faust)
        name = key.decode()
        counts[name] += 1
        await target.send(key=key, value=str(counts[name]).encode())


if __name__ == "__main__":
    sys.argv = ["count", "worker", "--loglevel=warn", "--without-web"]
    app.main()
