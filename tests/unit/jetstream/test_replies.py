import json

from streamlog.jetstream.replies import encoded


def test_any_reply_is_json_in_utf_8() -> None:
    for reply in (
        {"type": "t", "streams": ["a", "ä", "\u20ac"], "created": None, "total": 2**64 - 1},
        {"error": {"description": "half of a pair: \ud800"}},
        {"number": 2**70},
    ):
        assert json.loads(encoded(reply)) == reply
    assert encoded({"name": "ä"}) == '{"name":"ä"}'.encode()
