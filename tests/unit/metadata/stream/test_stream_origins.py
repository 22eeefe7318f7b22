"""What a mirror and sources may be, and how an origin is written."""

from typing import Any

import pytest

from streamlog.errors import InvalidStreamConfig
from streamlog.metadata.stream.origin_circles import check_origins
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metadata.stream.stream_origin import (
    OriginTransform,
    StreamOrigin,
    Transform,
    origin_from_human,
    origin_of,
    origin_text,
    origins_from_human,
    origins_of,
    origins_text,
)
from streamlog.metadata.stream.stream_subjects import bound_subjects

WHOLE: dict[str, Any] = {
    "name": "O",
    "opt_start_seq": 5,
    "opt_start_time": "2026-01-02T03:04:05.5Z",
    "subject_transforms": [{"src": "a", "dest": "b"}],
    "external": {"api": "$JS.hub.API", "deliver": "d"},
}


def by_consumer(**fields: str) -> str:
    consumer = {"name": "c", "deliver_subject": "d", **fields}
    return str(origin_text({"name": "o", "consumer": consumer}))


def test_texts_of_equal_origins_are_equal() -> None:
    text = origin_text(WHOLE)
    assert origin_text({**dict(reversed(WHOLE.items())), "filter_subject": ""}) == text
    assert origin_of(text).json() == WHOLE
    assert origin_text({**WHOLE, "opt_start_time": 1_767_323_045_500}) == text
    assert origin_text(None) is None


def test_origin_with_a_consumer_is_another_one() -> None:
    said = {"name": "O", "consumer": {"name": "c", "deliver_subject": "d.c"}}
    origin = origin_of(origin_text(said))
    assert origin.json() == said
    assert origin.index_name == "O:C=c > >"
    config = StreamConfig.of(name="s", sources=origins_text([said, {"name": "O"}]))
    assert bound_subjects(config) >= {"d.c"}


def test_people_write_names_or_json() -> None:
    assert origin_of(origin_from_human("orders")) == StreamOrigin("orders")
    assert origin_of(origin_from_human('{"name": "o", "opt_start_seq": 2}')).start_seq == 2
    assert [it.name for it in origins_of(origins_from_human("a, b"))] == ["a", "b"]
    assert origins_from_human("") == ""
    assert origin_from_human("") == ""
    for text in ("{", '{"consumer": 5}', '{"external": 5}'):
        with pytest.raises(ValueError, match=r"."):
            origin_from_human(text)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mirror": '{"name":"o"}', "subjects": ("a",)}, "can not contain subjects"),
        ({"mirror": '{"name":"o"}', "sources": '[{"name":"p"}]'}, "other sources"),
        ({"mirror": '{"name":"s"}'}, "cycle"),
        ({"mirror": '{"name":"a.b"}'}, "no stream's name"),
        ({"mirror": "{"}, "mirror, sources"),
        ({"mirror": '{"name":"o"}', "allow_ttl": True}, "allow_ttl"),
        ({"mirror": '{"name":"o"}', "group": "g"}, "group"),
        ({"mirror": '{"name":"o","external":{"api":"x"}}', "partitions": 2}, "one partition"),
        ({"mirror_direct": True}, "no mirror"),
        ({"sources": '[{"name":"o"},{"name":"o","opt_start_seq":3}]'}, "duplicate source"),
        ({"sources": '[{"name":"o"}]', "partitions": 2}, "partition_by"),
        ({"mirror": by_consumer(deliver_subject="d.*")}, "mirror consumer config"),
        ({"mirror": by_consumer(name="a.b")}, "mirror consumer config"),
        ({"mirror": by_consumer(), "partitions": 2}, "has one"),
        ({"sources": f'[{by_consumer()[:-1]},"opt_start_seq":2}}]'}, "where it begins"),
        (
            {
                "sources": f"[{by_consumer()},{by_consumer()[:-1]},"
                '"subject_transforms":[{"src":"a","dest":"b"}]}]'
            },
            "duplicate stream source consumer",
        ),
        ({"sources": '[{"name":"o","filter_subject":"a b"}]'}, "source"),
        ({"sources": origins_from_human(",".join(f"o{it}" for it in range(1_001)))}, "1000"),
        (
            {
                "mirror": origin_text(
                    {
                        "name": "o",
                        "subject_transforms": [{"src": f"a{it}", "dest": ""} for it in range(65)],
                    }
                )
            },
            "at most 64",
        ),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidStreamConfig, match=words):
        StreamConfig.of(name="s", **settings)


def test_circles_and_other_partitions_are_refused() -> None:
    def of(name: str, **settings: Any) -> StreamConfig:
        return StreamConfig.of(name=name, **settings)

    known = {
        it.name: it
        for it in (
            of("a", sources='[{"name":"b"}]'),
            of("b", mirror='{"name":"c"}'),
            of("w", partitions=3),
        )
    }
    with pytest.raises(InvalidStreamConfig, match="cycle"):
        check_origins(of("c", sources='[{"name":"x"},{"name":"a"}]'), None, known.get)
    check_origins(of("c", sources='[{"name":"x"}]'), None, known.get)
    check_origins(of("c", mirror='{"name":"a","external":{"api":"$JS.x.API"}}'), None, known.get)
    with pytest.raises(InvalidStreamConfig, match="3 partitions"):
        check_origins(of("m", mirror='{"name":"w"}', partitions=2), None, known.get)
    mirror = of("m", mirror='{"name":"x"}')
    with pytest.raises(InvalidStreamConfig, match="can not be updated"):
        check_origins(of("m", mirror='{"name":"y"}'), mirror, known.get)
    with pytest.raises(InvalidStreamConfig, match="can not be updated"):
        check_origins(mirror, of("m"), known.get)
    check_origins(of("m"), mirror, known.get)


def test_first_transform_that_matches_counts() -> None:
    made = OriginTransform(
        [Transform("a.*", "b.{{wildcard(1)}}"), Transform("c.>", ""), Transform("", "z.>")]
    )
    assert [made(it) for it in ("a.1", "c.d", "e.f")] == ["b.1", "c.d", "z.e.f"]


def test_subjects_of_other_apis_are_bound() -> None:
    text = '[{"name":"o","external":{"api":"$JS.x.API","deliver":"d"}},{"name":"p"}]'
    config = StreamConfig.of(name="s", subjects=("a",), sources=text)
    assert bound_subjects(config) == {"a", "$JS.x.API.>", "d.>"}
