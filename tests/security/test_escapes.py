"""What others call themselves is not obeyed by the terminal of whoever looks."""

import io
import json
import logging
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.app.escapes import visible, visible_json, visible_lines
from streamlog.app.logs import configure_logs
from streamlog.cli.messages.record_lines import json_record
from streamlog.cli.output import document, print_json, print_pairs, print_table, say
from streamlog.record.codec import Record

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u200b\x85\x7f\ud800 \U000e0041"
"""Another title, a screen cleared, C1, right to left, nothing at all, a tag."""
UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def is_obeyed(text: str) -> bool:
    return any(unicodedata.category(it) in UNSEEN - {"Cs"} and it not in "\n\t" for it in text)


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_field_of_a_log_line_is_obeyed(output: io.StringIO, form: "str") -> None:
    configure_logs("json" if form == "json" else "console", "info", output)
    logger = logging.getLogger("streamlog.test")
    logger.info(HOSTILE, extra={"client_id": HOSTILE, "topics": [HOSTILE], HOSTILE: 1})
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logger.exception("it failed")
    text = output.getvalue()
    assert "owned" in text
    assert not is_obeyed(text)
    if form == "json":
        first = json.loads(text.splitlines()[0])
        assert (first["event"], first["client_id"], first["topics"]) == (
            HOSTILE,
            HOSTILE,
            [HOSTILE],
        )


def test_no_cell_and_no_line_of_a_command_is_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME", "OTHERS"], [(HOSTILE, [HOSTILE, "x"])])
    print_pairs([(HOSTILE, HOSTILE)])
    print_json({HOSTILE: [HOSTILE]})
    say(f"stream {HOSTILE}\n\tis gone")
    say(HOSTILE, to_stderr=True)
    print(
        document(
            json_record(
                0, Record(1, 2, HOSTILE.encode(errors="replace"), b"\x1b[2J", ((HOSTILE, b""),))
            )
        )
    )
    said = capsys.readouterr()
    assert said.out.count("owned") == 9
    assert "\n\tis gone" in said.out
    assert not is_obeyed(said.out + said.err)


def test_each_control_and_format_character_is_escaped() -> None:
    """Of the Unicode version that this Python knows."""
    every = (chr(it) for it in range(sys.maxunicode + 1))
    unseen = "".join(it for it in every if unicodedata.category(it) in UNSEEN)
    assert visible(unseen).isascii()


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert not is_obeyed(visible(text))
    assert "\n" not in visible(text)
    assert not is_obeyed(visible_lines(text))
    assert json.loads(visible_json([text])) == [text]
    assert not is_obeyed(visible_json([text]))
    if text.isprintable():
        assert visible(text) == text
