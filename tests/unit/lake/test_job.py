"""A job asks the nodes for the stream's setting no more often than it commits."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from streamlog.arrow.location import Location
from streamlog.arrow.options.read_options import ReadOptions
from streamlog.arrow.options.subscription import StreamSubscription
from streamlog.lake.catalog import TableName
from streamlog.lake.columns.table_columns import OpaqueColumns, TableColumns
from streamlog.lake.job import JobOptions, LakeJob


class Settings:
    """The part of a location that is asked."""

    def __init__(self) -> None:
        self.schema = ""
        self.asked = 0

    def settings(self, stream: str) -> Mapping[str, Any]:
        self.asked += 1
        return {"table_schema": self.schema}


@pytest.mark.parametrize(
    ("columns", "asked", "found"), [(None, 2, True), (OpaqueColumns(), 0, False)]
)
def test_the_setting_is_asked_for_once_in_an_interval(
    columns: TableColumns | None, asked: int, found: bool
) -> None:
    now = 100.0
    read = ReadOptions(servers="unused:1", subscription=StreamSubscription(("s",)))
    options = JobOptions("s", read, TableName("lake.s"), columns, interval_s=5.0)
    job = LakeJob(options, monotonic=lambda: now)
    settings = Settings()
    location = cast("Location", settings)
    assert not job.is_outdated(location)
    settings.schema = "json {}"
    for _ in range(4):
        now += 1.0
        assert not job.is_outdated(location)
    now += 1.0
    assert job.is_outdated(location) is found
    assert settings.asked == asked
