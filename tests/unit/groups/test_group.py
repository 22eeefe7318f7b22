import struct

from streamlog.groups.group import CONSUMER, same_subscription


def subscription(*topics: bytes, data: bytes = b"") -> bytes:
    names = b"".join(struct.pack(">h", len(it)) + it for it in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", len(data)) + data


def test_consumers_wish_for_the_same_by_the_names_of_topics() -> None:
    """What else they write, their leader does not assign by."""
    before, after = subscription(b"a", b"b", data=b"1"), subscription(b"b", b"a", data=b"2")
    assert same_subscription(CONSUMER, before, after)
    assert not same_subscription(CONSUMER, before, subscription(b"a"))
    assert not same_subscription(CONSUMER, b"no subscription", after)


def test_of_other_protocols_only_the_bytes_are_known() -> None:
    before, after = subscription(b"a", data=b"1"), subscription(b"a", data=b"2")
    for protocol_type in ("connect", None):
        assert not same_subscription(protocol_type, before, after)
        assert same_subscription(protocol_type, before, before)
