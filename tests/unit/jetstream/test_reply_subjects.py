"""No answer is published where a stream would store it, or NATS obey it."""

from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import InvalidRequest, InvalidSubject
from streamlog.jetstream.api import ReplySubjects
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.stream.subjects import overlap, takes_inboxes
from tests.page_world import image, partition, stream

TOKENS = st.sampled_from(["a", "b", "1", "*"])
PATTERNS = st.builds(
    lambda tokens, rest: ".".join((*tokens, *rest)),
    st.lists(TOKENS, min_size=1, max_size=3),
    st.sampled_from([(), (">",)]),
)
SUBJECTS = st.lists(st.sampled_from(["a", "b", "1", "2"]), min_size=1, max_size=4).map(".".join)
STREAMS = st.dictionaries(
    st.sampled_from(["s", "t", "u"]),
    st.tuples(st.lists(PATTERNS, min_size=1, max_size=2, unique=True), st.integers(1, 3)),
)


def made(name: str, subjects: list[str], partitions: int) -> list[StreamImage]:
    """None where no stream may have these subjects."""
    try:
        return [stream(name, *[partition()] * partitions, subjects=tuple(subjects), no_ack=True)]
    except (InvalidRequest, InvalidSubject):
        return []


def stored(streams: list[StreamImage], subject: str) -> bool:
    patterns = [
        pattern
        for it in streams
        for own in it.config.subjects
        if not takes_inboxes(own)
        for pattern in ([own, f"{own}.*"] if len(it.partitions) > 1 else [own])
    ]
    return any(overlap(pattern, subject) for pattern in patterns)


@given(steps=st.lists(STREAMS, min_size=1, max_size=5), subjects=st.lists(SUBJECTS, min_size=1))
def test_what_streams_store_is_known_as_they_come_and_go(steps, subjects) -> None:  # type: ignore[no-untyped-def]
    replies, old = ReplySubjects(), MetadataImage("c-1")
    for offset, wanted in enumerate(steps, 8):
        streams = [it for name, said in wanted.items() for it in made(name, *said)]
        new = image(*streams, offset=offset)
        replies.apply(old, new)
        old = new
        for subject in subjects:
            assert replies.allows(subject) != stored(streams, subject), subject
    replies.apply(old, image(offset=100))
    assert not replies._root.children, "nothing is left of streams that are gone"


def test_what_nats_obeys_is_no_inbox() -> None:
    replies = ReplySubjects()
    for subject in ("$JS.API.STREAM.PURGE.x", "$SYS.REQ.x", "$KV.b.k", "$JS.EVENT.ADVISORY.x"):
        assert not replies.allows(subject)
    for subject in ("_INBOX.a", "_INBOX.a.b", "mine.a", "_R_.a"):
        assert replies.allows(subject)


def test_inboxes_of_mirrors_of_nats_server_are_answered() -> None:
    replies = ReplySubjects()
    for subject in ("$JSC.R.D2S0cDfu", "$JS.M.fiKQz6qd", "$JS.S.WDjZvqlZ"):
        assert replies.allows(subject)
    for subject in (
        "$JSC.R.D2S0cDf",
        "$JS.M.*",
        "$JS.M.fiKQz6q.",
        "$JS.X.fiKQz6qd",
        "$JS.M.fiKQz6qd.x",
    ):
        assert not replies.allows(subject)


def test_a_stream_of_all_that_is_said_ends_no_answers() -> None:
    replies = ReplySubjects()
    everything = stream("all", partition(), subjects=("*.*",), no_ack=True)
    orders = stream("orders", partition(), subjects=("orders.>",))
    replies.apply(MetadataImage("c-1"), image(everything, orders))
    assert replies.allows("_INBOX.a")
    assert not replies.allows("orders.1")
