"""The options of ``stream add`` and ``stream edit`` are the rows of the table, and take human units."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from streamlog.cli.stream.settings import (
    SettingsCommand,
    check_min_isr,
    given_settings,
    shown_settings,
)
from streamlog.errors import InvalidStreamConfig
from streamlog.metadata.stream.settings_translation import SETTINGS
from streamlog.metadata.stream.stream_config import StreamConfig

app = typer.Typer(rich_markup_mode=None)
given: dict[str, Any] = {}


@app.command(cls=SettingsCommand)
def change(ctx: typer.Context, stream: str, dry_run: bool = False) -> None:
    given.clear()
    given.update(given_settings(ctx), stream=stream, dry_run=dry_run)


def run(*words: str) -> Any:
    return CliRunner().invoke(app, words)


def test_every_setting_has_its_option_except_those_with_commands_of_their_own() -> None:
    command = typer.main.get_command(app)
    names = {it.name for it in command.params} & {row.name for row in SETTINGS}
    assert {row.name for row in SETTINGS} - names == {"sealed", "paused"}
    for row in SETTINGS:
        option = next((it for it in command.params if it.name == row.name), None)
        assert option is None or row.option == "/".join([*option.opts, *option.secondary_opts])


def test_a_schema_is_read_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"properties": {"a": {"type": "string"}}}')
    done = run("orders", "--table-schema", str(path))
    assert done.exit_code == 0, done.output
    assert given["table_schema"] == f"json {path.read_text()}"
    assert run("orders", "--table-schema", "none").exit_code == 0
    assert given["table_schema"] == ""
    path.write_text('{"properties": {"a": {"type": "string", "format": "email"}}}')
    for text in (str(path), str(tmp_path / "none.avsc"), "orders.txt"):
        done = run("orders", "--table-schema", text)
        assert done.exit_code == 2, text
        assert "'--table-schema'" in done.output, done.output


def test_settings_are_given_in_human_units_and_all_others_are_left_out() -> None:
    done = run(
        "orders", "--max-age", "7d", "--max-bytes", "10GiB", "--segment-bytes", "64k",
        "--subject", "a", "--subject", "b.>", "--max-msgs", "unlimited", "--dupe-window", "500ms",
        "--cleanup-policy", "delete, compact", "--no-allow-rollup", "--read-only", "--ack",
        "--min-cleanable-dirty-ratio", "0.25", "--dry-run",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert given == {
        "stream": "orders", "dry_run": True, "subjects": ("a", "b.>"),
        "retention_ms": 604_800_000, "retention_bytes": 10 * 2**30, "segment_bytes": 65_536,
        "retention_messages": -1, "duplicate_window_ms": 500, "cleanup_policy": "compact,delete",
        "allow_rollup": False, "readonly": True, "no_ack": False,
        "min_cleanable_dirty_ratio": 0.25,
    }  # fmt: skip
    assert run("orders").exit_code == 0
    assert given == {"stream": "orders", "dry_run": False}


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--max-age", "1w", "'1w' is not a duration; write 7d"),
        ("--max-bytes", "10 GB", "'10 GB' is not a size; write 10GiB"),
        ("--max-msg-size", "1GiB", "1GiB is not 1 to 64MiB, or unlimited"),
        ("--max-bytes", "0", "0 is not 1 to 9223372036854775807, or unlimited"),
        ("--segment-bytes", "unlimited", "'unlimited' is not a size"),
        ("--replicas", "6", "6 is not 1 to 5"),
        ("--partitions", "many", "'many' is not a value of it (INTEGER)"),
        ("--acks", "some", "'some' is none of all, leader, none"),
        ("--min-cleanable-dirty-ratio", "nan", "nan is not 0 to 1"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_option(
    option: str, text: str, said: str
) -> None:
    done = run("orders", option, text)
    assert done.exit_code == 2
    assert f"Invalid value for '{option}': {said}" in " ".join(done.output.split())


def test_what_other_settings_forbid_is_said_by_the_name_of_the_option() -> None:
    @app.command("refuse", cls=SettingsCommand)
    def refuse(ctx: typer.Context) -> None:
        check_min_isr(given_settings(ctx))
        StreamConfig.of(name="s", **given_settings(ctx))

    for words, said in (
        (("--max-age", "50ms"), "--max-age: at least 100, or -1 for no limit"),
        (("--min-isr", "3"), "--min-isr: 3 is more than the replicas (1)"),
        (("--min-isr", "3", "--replicas", "2"), "--min-isr: 3 is more than the replicas (2)"),
        (("--deny-purge", "--allow-rollup"), "roll-ups require the purge permission"),
    ):
        with pytest.raises(InvalidStreamConfig) as raised:
            CliRunner().invoke(app, ["refuse", *words], catch_exceptions=False)
        assert str(raised.value) == said
    app.registered_commands.pop()


def test_settings_are_shown_as_they_are_written() -> None:
    config = StreamConfig.of(name="s", retention_ms=90_000, segment_bytes=65_536)
    shown = dict(shown_settings(config.model_dump()))
    assert (shown["retention_ms"], shown["segment_bytes"]) == ("90s", "64KiB")
    assert (shown["retention_bytes"], shown["sync"]) == ("no limit", None)
    assert shown["message_bytes_max"] == "as the node is set"
    assert list(shown) == [it for it in StreamConfig.model_fields if it != "inert_configs"]
    config = config.changed(inert_configs={"flush.ms": "1"})
    assert dict(shown_settings(config.model_dump()))["inert_configs"] == {"flush.ms": "1"}


def test_help_calls_other_settings_by_their_options() -> None:
    shown = " ".join(run("--help").output.split())
    assert "It is never longer than --max-age, and becomes shorter with it." in shown
    assert "{" not in shown.partition("Options:")[2]
