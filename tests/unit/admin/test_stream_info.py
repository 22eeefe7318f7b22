from datetime import UTC, datetime

from nats.js.api import Base

from streamlog.admin.stream_info import rfc3339


def test_times_end_in_z_and_keep_milliseconds() -> None:
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(1_795_254_123_007) == "2026-11-21T09:42:03.007Z"
    assert Base._parse_utc_iso(rfc3339(1)) == datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)
