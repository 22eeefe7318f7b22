"""What became of the cluster, told from one image to the next."""

from streamlog.http.console.event_log import EVENTS_MAX, STREAMS_MAX, EventLog
from streamlog.metadata.image.metadata_image import MetadataImage
from tests.page_world import image, partition, stream


def told(old: MetadataImage, new: MetadataImage) -> list[str]:
    chronicle = EventLog()
    chronicle.changed(old, new, 5)
    return [event.text for event in reversed(chronicle.latest(100))]


def test_nodes_come_and_go() -> None:
    gone = image(node_2={"fenced": True}, offset=8)
    assert told(image(), gone) == ["node 2 is gone: others lead in its place"]
    assert told(gone, image(offset=9)) == ["node 2 is alive"]
    assert told(image(node_3=None), image(offset=8)) == ["node 3 joined from host-3:9092"]
    assert told(image(), image(node_3=None, offset=8)) == ["node 3 was removed from the cluster"]
    full = image(node_1={"full": True, "draining": True}, offset=8)
    assert told(image(), full) == ["node 1 has a full disk", "node 1 is being drained"]


def test_streams_and_partitions_change() -> None:
    before = image(stream("s", partition()))
    assert told(image(), before) == ["stream s was created with 1 partition"]
    assert told(before, image(offset=8)) == ["stream s was deleted"]
    after = image(stream("s", partition(leader=3, isr=(1, 3), epoch=4)), offset=8)
    assert told(before, after) == [
        "s/0: led by 3, before by 1, epoch 4",
        "s/0: in sync: 1, 3 (before: 1, 2, 3)",
    ]
    none = image(stream("s", partition(leader=-1, epoch=1)), offset=8)
    assert told(before, none) == ["s/0: has no leader any more (it was 1)"]


def test_many_changes_are_told_in_few_words() -> None:
    before = image(stream("s", *[partition()] * 100))
    after = image(stream("s", *[partition(leader=2)] * 100), offset=8)
    texts = told(before, after)
    assert len(texts) == 5
    assert texts[-1] == "s: 96 partitions more changed leader or replicas"
    many = image(*[stream(f"s{number}", partition()) for number in range(STREAMS_MAX + 9)])
    assert told(image(), many)[-1] == "9 more streams changed at the same time"


def test_an_event_is_seen_by_who_may_know_of_its_stream() -> None:
    chronicle = EventLog()
    many = image(*[stream(f"s{number:02}", partition()) for number in range(STREAMS_MAX + 9)])
    chronicle.changed(image(), many, 5)
    chronicle.changed(many, image(*many.streams.values(), node_1={"full": True}, offset=8), 6)
    seen = [it for it in chronicle.latest(100) if it.is_seen("s07".__eq__)]
    assert [it.text for it in seen] == [
        "node 1 has a full disk",
        "stream s07 was created with 1 partition",
    ], "and not how many others were made"


def test_it_forgets_the_oldest() -> None:
    chronicle = EventLog()
    for number in range(EVENTS_MAX + 3):
        chronicle.note("x", str(number), number)
    events = chronicle.latest(EVENTS_MAX + 3)
    assert (events[0].text, events[-1].text) == (str(EVENTS_MAX + 2), "3")
    assert events[0].number == EVENTS_MAX + 3
    assert [it.text for it in chronicle.latest(1)] == [str(EVENTS_MAX + 2)]
