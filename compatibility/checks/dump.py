"""Segment files, read by the client's own tool."""

from compatibility.checks.check import same_records
from compatibility.program import record_of
from compatibility.scene import Scene, values
from compatibility.segments import CODECS

COUNT = 200


def segment_files(scene: Scene) -> str:
    """What NATS publishers wrote, with each codec."""
    for codec in CODECS:
        topic = scene.topic(configs={"compression.type": codec})
        scene.publish(topic, values(0, COUNT))
        (segment,) = scene.cluster.folder_of(topic).glob("*.log")
        program = scene.start("dump", file=str(segment))
        found = [record_of({"partition": 0, **line}) for line in program.finish()]
        same_records(found, values(0, COUNT))
    return ""
