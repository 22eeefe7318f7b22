"""All requests that both servers are asked, scene by scene."""

from collections.abc import Iterator
from typing import Any, Final

from compatibility.management.request import Request, Scene, ask, publish
from streamlog.jetstream.requests.request_schemas import (
    CONSUMERS,
    MESSAGE,
    MESSAGE_DELETE,
    NAMES,
    PURGE,
    REMOVE_PEER,
    STEP_DOWN,
    STREAM_CONFIG,
    STREAM_INFO,
)
from streamlog.jetstream.requests.schema import Shape

WRONG: Final[tuple[Any, ...]] = (
    None, True, 0, -1, 7, 1.5, 2**31, 2**63, 2**64, "", "x", "7", "x" * 300, [], [1], ["x"], {},
    {"x": 1},
)  # fmt: skip
"""Tried as every field of every request."""
NAME: Final = "scene"
NAMES_TRIED: Final[tuple[bytes, ...]] = (
    b"plain", b"with-dash_1", b"a.b", b"a*b", b"a/b", b"a\\b", b"x" * 255, b"x" * 256,
    b"x" * 300, "grüße".encode(), b"\xff\xfe", b"a:b", b"a$b", b"$JS", b"__consumer_offsets",
    b"_hidden", b"a=b", b"a,b",
)  # fmt: skip
SUBJECTS_TRIED: Final[tuple[Any, ...]] = (
    ["a"], ["a.b", "a.c"], ["a.*", "b.>"], [], [""], ["a b"], ["a\tb"], ["a..b"], [".a"], ["a."],
    ["a.>.b"], ["a*"], ["a.b>"], ["a", "a"], ["a.>", "a.b"], ["a.*", "*.b"], [">"], ["*"], ["*.>"],
    ["*.*"], ["$JS.API.>"], ["$JS.streamlog.API.>"], ["$JS.ACK.>"],
    ["$JSC.a"], ["$NRG.a"], ["$SYS.>"], ["$SYS.ACCOUNT.>"], ["$KV.bucket.>"], ["$O.bucket.>"],
    ["_INBOX.>"], ["__consumer_offsets"], ["grüße.welt"], ["x" * 300], ["a", None], [7], "a",
)  # fmt: skip
BLOCKS_TRIED: Final[tuple[bytes, ...]] = (
    b"N", b"NATS/1.0", b"NATS/1.0\r\n", b"NATS/1.0\r\n\r\n", b"NATS/1.0 \r\n\r\n",
    b"NATS/1.0 503\r\n\r\n", b"NATS/1.0 \xff\xff\xff\r\n\r\n", b"NATS/1.0 503 \xff\r\nA: b\r\n\r\n",
    b"NATS/1.0\r\nA", b"NATS/1.0\r\n: a\r\n\r\n", b"NATS/1.0\r\nA: \xff\r\n\r\n",
    b"NATS/1.0\r\n\xff: a\r\n\r\n", b"NATS/9.9\r\nA: b\r\n\r\n", b"\r\n\r\n", b" " * 20, bytes(20),
    b"\xff" * 40, b"A: b\r\n" * 2_000,
)  # fmt: skip
"""Sent as headers."""


def scenes() -> list[Scene]:
    """Each removes the streams that it makes."""
    return [
        Scene("fields of CREATE", tuple(_fields_of_create())),
        Scene("fields of the others", tuple(_fields_of_others())),
        Scene("rules", tuple(_rules())),
        Scene("names", tuple(_names())),
        Scene("subjects", tuple(_subjects())),
        Scene("updates", tuple(_updates())),
        Scene("pages", tuple(_pages())),
        Scene("verbs and bodies", tuple(_verbs_and_bodies())),
        Scene("headers", tuple(_headers())),
        Scene("large fields", tuple(_large())),
        Scene("a stream's life", tuple(_life())),
        Scene("purges by subject", tuple(_purges_by_subject())),
        Scene("messages", tuple(_messages())),
        Scene("direct gets", tuple(_direct_gets())),
        Scene("a sealed stream", tuple(_sealed())),
    ]


def _create(name: str = NAME, **fields: Any) -> Request:
    return ask(f"STREAM.CREATE.{name}", {"name": name, **fields})


def _delete(name: str = NAME) -> Request:
    return Request(f"STREAM.DELETE.{name}", quiet=True)


def _fields_of_create() -> Iterator[Request]:
    for field in STREAM_CONFIG.fields:
        for value in WRONG:
            yield ask(f"STREAM.CREATE.{NAME}", {"name": NAME, field: value})
            yield _delete()
    yield _create(something_of_tomorrow=0)
    yield _create(NAME=NAME, Max_Bytes=7)
    yield _delete()


def _fields_of_others() -> Iterator[Request]:
    yield _create(subjects=["scene.*"], allow_direct=True)
    for i in range(4):
        yield publish(f"scene.{i % 2}", b"%d" % i)
    tried: tuple[tuple[str, Shape], ...] = (
        ("STREAM.NAMES", NAMES),
        ("STREAM.LIST", NAMES),
        (f"CONSUMER.NAMES.{NAME}", CONSUMERS),
        (f"CONSUMER.LIST.{NAME}", CONSUMERS),
        (f"STREAM.INFO.{NAME}", STREAM_INFO),
        (f"STREAM.MSG.GET.{NAME}", MESSAGE),
        (f"DIRECT.GET.{NAME}", MESSAGE),
        (f"STREAM.LEADER.STEPDOWN.{NAME}", STEP_DOWN),
        (f"STREAM.PEER.REMOVE.{NAME}", REMOVE_PEER),
        (f"STREAM.MSG.DELETE.{NAME}", MESSAGE_DELETE),
        (f"STREAM.PURGE.{NAME}", PURGE),
    )
    for verb, shape in tried:
        for field in (*shape.fields, "something_of_tomorrow"):
            for value in WRONG:
                yield ask(verb, {field: value})
    yield _delete()


def _rules() -> Iterator[Request]:
    second = 10**9
    configs: tuple[dict[str, Any], ...] = (
        {"description": "d" * 4096}, {"description": "d" * 4097}, {"metadata": {"k": "v"}},
        {"metadata": {"k": "v" * 131_072}}, {"metadata": {"k": "v" * 131_000}},
        {"metadata": {"_nats.ver": "1", "k": "v"}}, {"max_age": 10 * second}, {"max_age": 1},
        {"max_age": 10 * second, "duplicate_window": 20 * second}, {"duplicate_window": 1},
        {"duplicate_window": -second}, {"max_age": 500 * second}, {"num_replicas": 3},
        {"num_replicas": 6}, {"num_replicas": -1}, {"max_msgs": -9}, {"max_bytes": 0},
        {"max_msgs": -9, "pedantic": True}, {"max_age": second, "pedantic": True},
        {"deny_purge": True, "allow_rollup_hdrs": True}, {"deny_purge": True},
        {"deny_delete": True}, {"allow_msg_counter": True, "discard": "new"},
        {"allow_msg_counter": True, "allow_msg_ttl": True},
        {"discard_new_per_subject": True}, {"discard_new_per_subject": True, "discard": "new"},
        {"subject_delete_marker_ttl": 1}, {"subject_delete_marker_ttl": -1},
        {"subject_delete_marker_ttl": second}, {"subject_delete_marker_ttl": 1_500_000_000},
        {"subject_delete_marker_ttl": second, "pedantic": True},
        {"subject_delete_marker_ttl": second, "deny_purge": True},
        {"subject_delete_marker_ttl": second, "discard": "new", "max_age": second},
        {"allow_msg_schedules": True, "discard": "new"},
        {"persist_mode": "async", "storage": "memory"},
        {"persist_mode": "async", "num_replicas": 3},
        {"persist_mode": "async", "allow_atomic": True}, {"sealed": True}, {"mirror_direct": True},
        {"placement": {}}, {"placement": {"cluster": "nowhere"}}, {"placement": {"tags": ["x"]}},
        {"placement": {"preferred": "node-1"}}, {"no_ack": True}, {"compression": "s2"},
        {"max_bytes": 1000, "max_msgs": 10, "max_msg_size": 100}, {"consumer_limits": {}},
        {"max_consumers": 2}, {"max_consumers": -3}, {"max_consumers": -3, "pedantic": True},
        {"consumer_limits": {"inactive_threshold": 1_500_000, "max_ack_pending": 5}},
        {"consumer_limits": {"max_ack_pending": -1}}, {"consumer_limits": {"max_ack_pending": "x"}},
        {"mirror": {"name": "a b"}}, {"mirror": {"name": "x"}, "subjects": ["a"]},
        {"sources": [{"name": "x"}, {"name": "x"}]}, {"allow_direct": True},
        *_origins(),
    )  # fmt: skip
    for config in configs:
        yield ask(f"STREAM.CREATE.{NAME}", {"name": NAME, **config})
        yield _delete()
    for level in ("0", "4", "5", "99", "x", "", "-1"):
        yield ask("INFO", None, Nats_Required_Api_Level=level)
        yield ask("STREAM.INFO.none", None, Nats_Required_Api_Level=level)
        yield ask("DIRECT.GET.none", None, Nats_Required_Api_Level=level)


def _origins() -> Iterator[dict[str, Any]]:
    """Of mirrors and sources; none is there."""
    transform, wide = {"src": "a.b", "dest": "c"}, {"src": "a.>", "dest": ""}
    origins: tuple[dict[str, Any], ...] = (
        {}, {"name": ""}, {"name": "x"}, {"name": "a.b"}, {"name": NAME}, {"name": "x" * 256},
        {"name": "x", "opt_start_seq": 5}, {"name": "x", "opt_start_time": "2026-01-02T03:04:05Z"},
        {"name": "x", "filter_subject": "a.*"}, {"name": "x", "filter_subject": "a..b"},
        {"name": "x", "filter_subject": "a.b", "subject_transforms": [transform]},
        {"name": "x", "subject_transforms": [transform]},
        {"name": "x", "subject_transforms": [transform, wide]},
        {"name": "x", "subject_transforms": [{"src": "a..", "dest": "b"}]},
        {"name": "x", "external": {"api": "$JS.hub.API", "deliver": ""}},
        {"name": "x", "external": {"api": "a.*", "deliver": ""}},
        {"name": "x", "external": {"api": "a", "deliver": "b.>"}},
    )  # fmt: skip
    for origin in origins:
        yield {"mirror": origin}
        yield {"sources": [origin]}
        yield {"sources": [origin], "subjects": ["own"]}
    for more in (
        {"sources": [{"name": "y"}]}, {"first_seq": 5}, {"allow_atomic": True}, {"allow_batched": True},
        {"mirror_direct": True},
        {"max_msgs_per_subject": 1, "allow_rollup_hdrs": True, "deny_delete": True},
        {"duplicate_window": 1_000_000_000}, {"max_age": 1_000_000_000}, {"sealed": True},
        {"subject_delete_marker_ttl": 1_000_000_000},
    ):  # fmt: skip
        yield {"mirror": {"name": "x"}, **more}


def _names() -> Iterator[Request]:
    for name in NAMES_TRIED:
        text = name.decode(errors="replace")
        for verb in ("INFO", "CREATE", "UPDATE", "PURGE", "MSG.GET", "DELETE", "LEADER.STEPDOWN"):
            body = {"name": text, "subjects": ["named"]} if verb in ("CREATE", "UPDATE") else None
            yield ask(b"STREAM.%b.%b" % (verb.encode(), name), body)
        yield ask(b"DIRECT.GET.%b" % name, {"seq": 1})
    yield ask(f"STREAM.CREATE.{NAME}", {"name": "other"})
    yield ask(f"STREAM.CREATE.{NAME}", {"name": ""})
    yield ask(f"STREAM.UPDATE.{NAME}", {"name": "other"})
    for other in ("a b", "a\tb", "a\n", "a.b", "*", ">", "/", "x" * 300):
        yield ask(f"STREAM.CREATE.{NAME}", {"name": other})
        yield ask(f"STREAM.UPDATE.{NAME}", {"name": other})
    yield ask(f"STREAM.CREATE.{NAME}", {"name": "\0"})
    yield ask("STREAM.CREATE.a", b'{"name": "a\xff"}')
    yield ask("STREAM.CREATE.a", b'{"name": "\\ud800"}')


def _subjects() -> Iterator[Request]:
    for subjects in SUBJECTS_TRIED:
        yield _create(subjects=subjects)
        yield _delete()
    for subject in ("a", "a b", "a.*.>", "$JS.API.>", "$SYS.>", "_INBOX.>"):
        yield _create(subjects=[subject], no_ack=True)
        yield _delete()
    yield _create(subjects=["first"])
    for subjects in SUBJECTS_TRIED:
        if "_INBOX.>" in subjects:
            continue  # JetStream would store its own answers
        yield ask(f"STREAM.UPDATE.{NAME}", {"name": NAME, "subjects": subjects})
    yield _delete()
    yield _create("one", subjects=["shared.>"])
    yield _create("other", subjects=["shared.a"])
    yield ask("STREAM.UPDATE.one", {"name": "one", "subjects": ["shared.b"]})
    yield _delete("one")
    yield _delete("other")


def _updates() -> Iterator[Request]:
    yield _create(subjects=["u"])
    for config in (
        {}, {"subjects": ["u"]}, {"subjects": ["u", "v"]}, {"description": "d"}, {"max_msgs": 5},
        {"storage": "memory"}, {"retention": "workqueue"}, {"retention": "interest"},
        {"num_replicas": 3}, {"allow_msg_counter": True}, {"persist_mode": "async"},
        {"allow_direct": True}, {"mirror": {"name": "x"}}, {"mirror_direct": True},
        {"deny_delete": True}, {"deny_delete": False}, {"deny_purge": True, "deny_delete": True},
        {"deny_delete": True}, {"name": "other"}, {"name": ""},
    ):  # fmt: skip
        yield ask(f"STREAM.UPDATE.{NAME}", {"name": NAME, **config})
    yield ask(f"STREAM.PURGE.{NAME}")
    yield _create(subjects=["u"])
    yield ask(f"STREAM.INFO.{NAME}")
    yield ask("STREAM.UPDATE.none", {"name": "none"})
    yield _delete()


def _pages() -> Iterator[Request]:
    for i in range(5):
        yield _create(f"page-{i}", subjects=[f"page.{i}.*", f"other.{i % 2}.{i}"])
    for verb in ("STREAM.NAMES", "STREAM.LIST"):
        for fields in (
            None, {}, {"offset": 0}, {"offset": 2}, {"offset": 5}, {"offset": 99}, {"offset": -3},
            {"subject": "page.3.x"}, {"subject": "page.>"}, {"subject": "other.1.*"},
            {"subject": ">"}, {"subject": "nowhere"}, {"subject": "a..b"}, {"subject": ""},
            {"subject": "page.>", "offset": 3},
        ):  # fmt: skip
            yield ask(verb, fields)
    yield _create("page-0", subjects=["page.0.*", "other.0.0"])
    yield _create("page-0", subjects=["page.0.*"])
    for i in range(5):
        yield ask(f"STREAM.DELETE.page-{i}")
    yield ask("STREAM.NAMES")
    yield ask("STREAM.LIST")


def _verbs_and_bodies() -> Iterator[Request]:
    yield _create()
    for verb in (
        "", "NONSENSE", "STREAM", "STREAM.CREATE", "STREAM.INFO", "STREAM.CREATE.a.b",
        "STREAM.INFO.a.b", "STREAM.NONSENSE.scene", "stream.info.scene",
        "STREAM.NAMES.scene", "INFO.scene", "STREAM.TEMPLATE.CREATE.a", "DIRECT.GET",
        "STREAM.MSG.scene", "STREAM.MSG.GET", "CONSUMER.NAMES.scene", "CONSUMER.LIST.scene",
        "CONSUMER.NAMES.none", "CONSUMER.INFO.scene.c", "CONSUMER.INFO.none.c",
        "CONSUMER.DELETE.scene.c", "CONSUMER.INFO.scene", "CONSUMER.MSG.NEXT.scene.c",
        "SERVER.REMOVE", "META.LEADER.STEPDOWN", "ACCOUNT.PURGE.x",
    ):  # fmt: skip
        yield ask(verb or b"")
    bodies = (
        b"", b" ", b"{}", b" {} ", b"[]", b"[1]", b"null", b"7", b"x", b"{", b'{"a"}', b'{"a":}',
        b'{"seq":NaN}', b'{"seq":1}x', b"\xff\xfe", b"\xef\xbb\xbf{}", b"[" * 20_000, b'"text"',
        b'{"seq":01}', b'{"offset":1e2}', b'{"seq":1,"seq":2}', b'{"\\ud800":1}',
    )  # fmt: skip
    for verb in (
        "INFO", "STREAM.NAMES", "STREAM.LIST", "STREAM.CREATE.scene", "STREAM.UPDATE.scene",
        "STREAM.INFO.scene", "STREAM.MSG.GET.scene", "STREAM.LEADER.STEPDOWN.scene",
        "STREAM.MSG.DELETE.scene", "CONSUMER.NAMES.scene", "CONSUMER.LIST.scene",
        "STREAM.PEER.REMOVE.scene", "STREAM.PURGE.scene", "STREAM.DELETE.none",
    ):  # fmt: skip
        for body in bodies:
            yield ask(verb, body)
    yield ask("CONSUMER.CREATE.scene", {"stream_name": NAME, "config": {"ack_policy": "none"}})
    yield ask(f"STREAM.DELETE.{NAME}", b"x")
    yield ask(f"STREAM.DELETE.{NAME}", b"{}")
    yield ask(f"STREAM.DELETE.{NAME}")


def _headers() -> Iterator[Request]:
    yield _create(allow_direct=True)
    for block in BLOCKS_TRIED:
        for verb in (f"STREAM.INFO.{NAME}", "STREAM.NAMES", f"DIRECT.GET.{NAME}"):
            body = b'{"seq":1}' if verb.startswith("DIRECT") else b""
            yield Request(verb, body, block=block)
    yield _delete()


def _large() -> Iterator[Request]:
    """All but as much as NATS lets through."""
    size = 900_000
    text, texts = "x" * size, ["x"] * (size // 5)
    many = [f"large.{i}" for i in range(10_000)]
    for fields in (
        {"description": text}, {"subjects": [text]}, {"subjects": texts},
        {"metadata": {"k": text}}, {"metadata": {text: ""}},
        {"metadata": {f"k{i}": "" for i in range(50_000)}}, {text: 1},
        {"placement": {"tags": texts}}, {"subject_transform": {"src": text, "dest": "a"}},
        {"republish": {"src": text, "dest": "a"}}, {"max_msgs": text}, {"max_age": [text]},
    ):  # fmt: skip
        yield ask(f"STREAM.CREATE.{NAME}", {"name": NAME, **fields})
        yield _delete()
    yield ask(f"STREAM.CREATE.{NAME}", {"name": text})
    yield _create(subjects=["large.*"], allow_direct=True)
    yield publish("large.1", b"x")
    tried: tuple[tuple[str, dict[str, Any]], ...] = (
        ("STREAM.NAMES", {"subject": text}), ("STREAM.LIST", {"subject": text}),
        (f"STREAM.INFO.{NAME}", {"subjects_filter": text}),
        (f"STREAM.PURGE.{NAME}", {"filter": text}),
        (f"STREAM.MSG.GET.{NAME}", {"last_by_subj": text}),
        (f"STREAM.MSG.GET.{NAME}", {"next_by_subj": text}),
        (f"STREAM.MSG.DELETE.{NAME}", {"seq": text}),
        (f"DIRECT.GET.{NAME}", {"last_by_subj": text}),
        (f"DIRECT.GET.{NAME}", {"multi_last": many}),
        (f"STREAM.PEER.REMOVE.{NAME}", {"peer": text}),
    )  # fmt: skip
    for verb, fields in tried:
        yield ask(verb, fields)
    yield ask(f"STREAM.INFO.{NAME}")
    yield _delete()


def _life() -> Iterator[Request]:
    info = ask(f"STREAM.INFO.{NAME}")
    yield ask("INFO")
    yield _create(subjects=["life.>"])
    yield info
    for i in range(10):
        yield publish(f"life.{i % 3}", b"%d" % i)
    yield info
    yield ask(f"STREAM.INFO.{NAME}", {"subjects_filter": ">"})
    yield ask(f"STREAM.INFO.{NAME}", {"subjects_filter": "life.1"})
    yield ask(f"STREAM.INFO.{NAME}", {"subjects_filter": ">", "offset": 2})
    yield ask(f"STREAM.INFO.{NAME}", {"deleted_details": True})
    for fields in ({"seq": 3}, {"seq": 3}, {"keep": 5}, {"keep": 50}, {}, None):
        yield ask(f"STREAM.PURGE.{NAME}", fields)
        yield info
    yield publish("life.again", b"x")
    yield info
    yield ask("INFO")
    yield ask(f"STREAM.DELETE.{NAME}")
    yield info
    yield ask(f"STREAM.DELETE.{NAME}")
    yield ask(f"STREAM.PURGE.{NAME}")


def _purges_by_subject() -> Iterator[Request]:
    info = ask(f"STREAM.INFO.{NAME}")
    for fields in (
        {"filter": "m.1"}, {"filter": "m.0", "keep": 1}, {"filter": "m.0", "seq": 4},
        {"filter": "nowhere"}, {"filter": ">"}, {"seq": 99},
    ):  # fmt: skip
        yield from _filled(allow_direct=False)
        yield ask(f"STREAM.PURGE.{NAME}", fields)
        yield info
        yield _delete()


def _messages() -> Iterator[Request]:
    yield from _filled(allow_direct=False)
    for fields in (
        {"seq": 1}, {"seq": 6}, {"seq": 7}, {"seq": 0}, {"seq": 2**63}, {"last_by_subj": "m.1"},
        {"last_by_subj": "m.*"}, {"last_by_subj": "nowhere"}, {"next_by_subj": "m.0"},
        {"next_by_subj": "m.0", "seq": 2}, {"next_by_subj": "m.>", "seq": 99},
        {"seq": 1, "last_by_subj": "m.1"}, {"last_by_subj": "m.1", "next_by_subj": "m.1"},
        {"seq": 1, "batch": 2}, {"seq": 1, "max_bytes": 2}, {"seq": 2, "no_hdr": True},
        {"start_time": "2020-01-01T00:00:00Z"}, {"start_time": "2120-01-01T00:00:00Z"},
        {"start_time": "2020-01-01T00:00:00.5+01:00", "next_by_subj": "m.1"},
        {"start_time": "yesterday"}, {"start_time": "2020-01-01T00:00:00Z", "seq": 1},
        {"multi_last": ["m.1"]}, {"seq": 2, "multi_last": ["m.1"]},
    ):  # fmt: skip
        yield ask(f"STREAM.MSG.GET.{NAME}", fields)
    yield ask("STREAM.MSG.GET.none", {"seq": 1})
    yield ask(f"DIRECT.GET.{NAME}", {"seq": 1})
    yield ask(f"DIRECT.GET.{NAME}.m.1")
    yield _delete()


def _direct_gets() -> Iterator[Request]:
    yield from _filled(allow_direct=True)
    tried: tuple[Any, ...] = (
        None, b"x", b"{}", {"seq": 1}, {"seq": 2}, {"seq": 99}, {"seq": 2, "no_hdr": True},
        {"last_by_subj": "m.1"}, {"last_by_subj": "nowhere"}, {"next_by_subj": "m.0", "seq": 2},
        {"batch": 3}, {"seq": 1, "batch": 3}, {"seq": 5, "batch": 10}, {"seq": 99, "batch": 3},
        {"seq": 1, "batch": 1}, {"next_by_subj": "m.1", "batch": 2},
        {"next_by_subj": "m.*", "batch": 20, "seq": 3}, {"next_by_subj": "nowhere", "batch": 2},
        {"seq": 1, "batch": 10, "max_bytes": 8}, {"seq": 1, "batch": -1},
        {"last_by_subj": "m.1", "batch": 2}, {"seq": 1, "last_by_subj": "m.1"},
        {"start_time": "2020-01-01T00:00:00Z", "batch": 2},
        {"start_time": "2120-01-01T00:00:00Z", "batch": 2},
        {"start_time": "2020-01-01T00:00:00Z", "seq": 2},
        {"multi_last": ["m.0", "m.1"]}, {"multi_last": ["m.*"]}, {"multi_last": ["nowhere"]},
        {"multi_last": ["m.*"], "batch": 1}, {"multi_last": ["m.*"], "max_bytes": 1},
        {"multi_last": ["m.*"], "up_to_seq": 3}, {"multi_last": ["m.*"], "seq": 6},
        {"multi_last": ["m.*"], "up_to_time": "2020-01-01T00:00:00Z"},
        {"multi_last": ["m.*"], "up_to_time": "2120-01-01T00:00:00Z"},
        {"multi_last": ["m.*"], "up_to_seq": 3, "up_to_time": "2120-01-01T00:00:00Z"},
        {"multi_last": ["m.*"], "last_by_subj": "m.1"}, {"multi_last": []},
        {"multi_last": ["m.*"], "no_hdr": True}, {"seq": "1"}, {"something_of_tomorrow": 1},
        {"seq": 1, "something_of_tomorrow": 1},
    )  # fmt: skip
    for fields in tried:
        yield ask(f"DIRECT.GET.{NAME}", fields)
    tails: tuple[tuple[str, Any], ...] = (
        (".m.1", None), (".m.9", None), (".m.1", {"seq": 1}), (".m.1", b"x"),
        (".m.1", {}), (".m.1", {"no_hdr": True}),
    )  # fmt: skip
    for tail, fields in tails:
        yield ask(f"DIRECT.GET.{NAME}{tail}", fields)
    yield ask("DIRECT.GET.none", {"seq": 1})
    yield _delete()


def _filled(*, allow_direct: bool) -> Iterator[Request]:
    """Six messages, the second with headers."""
    yield _create(subjects=["m.*"], allow_direct=allow_direct)
    yield publish("m.0", b"zero")
    yield publish("m.1", b"one", Nats_Msg_Id="1", X="y z")
    yield publish("m.0", b"")
    yield publish("m.2", b"\x00\xff")
    yield publish("m.1", b"five")
    yield publish("m.0", b"six")


def _sealed() -> Iterator[Request]:
    yield _create(subjects=["s"], max_age=3600 * 10**9)
    yield publish("s", b"x")
    for config in ({"subjects": ["s"], "sealed": True}, {"subjects": ["s"]}, {"sealed": True}):
        yield ask(f"STREAM.UPDATE.{NAME}", {"name": NAME, **config})
    yield ask(f"STREAM.PURGE.{NAME}")
    yield ask(f"STREAM.MSG.GET.{NAME}", {"seq": 1})
    yield ask(f"STREAM.INFO.{NAME}")
    yield ask(f"STREAM.DELETE.{NAME}")
