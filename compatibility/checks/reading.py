"""Reading assigned partitions: from the earliest record, and from a time."""

import time

from compatibility.checks.check import same_records
from compatibility.scene import Scene, values

COUNT = 300


def assign(scene: Scene) -> str:
    """The second of two partitions, all of it; and again, from somewhere in between."""
    topic = scene.topic(partitions=2)
    wanted = values(0, COUNT)
    scene.publish(topic, wanted, partition=1)
    for first in (0, COUNT // 3):
        program = scene.start("consume", topic=topic, partition=1, offset=first)
        found = program.records(COUNT - first)
        same_records(found, wanted[first:], first, partition=1)
        program.finish()
    return ""


def seek_by_time(scene: Scene) -> str:
    """The first record of a time or later, which is not the first record."""
    topic = scene.topic()
    wanted = values(0, COUNT)
    half = COUNT // 2
    scene.publish(topic, wanted[:half])
    last_ms = scene.timestamp_ms(topic, half - 1)
    while time.time_ns() // 1_000_000 <= last_ms + 1:
        time.sleep(0.001)
    scene.publish(topic, wanted[half:])
    time_ms = scene.timestamp_ms(topic, half)
    assert time_ms > last_ms
    program = scene.start("consume", topic=topic, partition=0, time_ms=time_ms)
    same_records(program.records(COUNT - half), wanted[half:], half)
    program.finish()
    return ""
