import pytest
import typer

from streamlog.cli.stream.settings import OPTIONS, milliseconds
from streamlog.metadata.stream.settings_table import SETTINGS


@pytest.mark.parametrize(
    ("text", "ms"),
    [("7d", 604_800_000), ("12h", 43_200_000), ("2m", 120_000), ("10s", 10_000), ("5ms", 5),
     ("250", 250), ("-1", -1)],
)  # fmt: skip
def test_durations(text: str, ms: int) -> None:
    assert milliseconds(text) == ms


@pytest.mark.parametrize("text", ["", "d", "1.5h", "-2s", "7 d", "1w"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="write 7d"):
        milliseconds(text)


def test_each_option_is_a_setting() -> None:
    names = {it.name for it in SETTINGS}
    assert {"subjects" if it == "subject" else it for it in OPTIONS} <= names | {"group"}
