"""The settings of a stream as options: one for each row of the table that has one.

``stream add`` and ``stream edit`` are commands of the class ``SettingsCommand``, which has these
options besides those of its function. The function asks ``given_settings`` for what was named.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from streamlog.errors import ConfigError, InvalidStreamConfig
from streamlog.metadata.stream.setting_type import NO_LIMIT, TABLE_SCHEMA, StreamSetting
from streamlog.metadata.stream.settings_translation import SETTINGS
from streamlog.record.schema.table_schema import TableSchema

_GIVEN: Final = "streamlog.settings"
_OPTIONAL: Final = tuple(row for row in SETTINGS if row.option is not None)
_NAMES: Final = {row.name: (row.option or row.name).partition("/")[0] for row in SETTINGS}


class SettingsCommand(TyperCommand):
    """A command with an option for each setting of a stream, after its arguments. What is wrong with
    a setting is said by the name of its option.
    """

    def __init__(self, name: str | None, **attributes: Any) -> None:
        own = attributes.pop("params") or []
        arguments = [it for it in own if it.param_type_name == "argument"]
        others = [it for it in own if it.param_type_name != "argument"]
        super().__init__(name, params=[*arguments, *_options(), *others], **attributes)

    def invoke(self, ctx: Any) -> Any:
        named = {row.name: ctx.params.pop(row.name) for row in _OPTIONAL}
        ctx.meta[_GIVEN] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in named.items()
            if value is not None and value not in ([], ())
        }
        try:
            return super().invoke(ctx)
        except InvalidStreamConfig as error:
            name, colon, problem = str(error).partition(":")
            if not colon or name not in _NAMES:
                raise
            raise InvalidStreamConfig(f"{_NAMES[name]}:{problem}") from None


def shown_settings(config: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Names and values of a configuration in JSON, as people write them; None: as the node is set."""
    yield "name", config["name"]
    for row in SETTINGS:
        value = config.get(row.name, row.default)  # a setting of a later feature level is left out
        if row.is_limit and value == NO_LIMIT:
            yield row.name, row.about.minus_one
        else:
            yield row.name, row.to_human(value) if row.unit and value is not None else value
    yield "metadata", config["metadata"]
    if inert := config.get("inert_configs"):
        yield "inert_configs", inert


def given_settings(ctx: typer.Context) -> dict[str, Any]:
    """The settings that were named on the command line; all others stay as they are."""
    found: dict[str, Any] = ctx.meta[_GIVEN]
    return found


def check_min_isr(settings: Mapping[str, Any]) -> None:
    """Of a stream that is to be made. Kafka's clients may ask for more replicas in sync than there are, and so refuse
    all writes with acks=all; on a command line that is a slip. Raises InvalidStreamConfig.
    """
    replicas, min_isr = settings.get("replicas", 1), settings.get("min_isr", 1)
    if min_isr > replicas:
        raise InvalidStreamConfig(f"min_isr: {min_isr} is more than the replicas ({replicas})")


def _options() -> list[Any]:
    """Typer makes options of a signature alone: this is that of a function that has them all."""

    def settings(**_: Any) -> None: ...

    annotations = {row.name: _option(row) for row in _OPTIONAL}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in annotations.items()
    ]
    settings.__annotations__ = annotations
    settings.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False)
    app.command()(settings)
    return [it for it in typer.main.get_command(app).params if it.name in annotations]


def _option(row: StreamSetting) -> Any:
    """The annotation of a parameter of typer."""
    shown, choices = row.told(_NAMES, human=True), row.type.choices
    if row.form is TABLE_SCHEMA:
        shown += (
            " Here: the file NAME.json, NAME.avsc or NAME.desc:package.Message; none takes it away."
        )
    if row.type.kind is bool:
        return Annotated[bool | None, typer.Option(row.option, help=shown)]
    if row.type.kind is tuple:
        shown += " May be repeated."
        return Annotated[list[str] | None, typer.Option(row.option, help=shown)]
    option = typer.Option(
        row.option,
        parser=_reader(row),
        metavar="|".join(choices) or row.form.metavar,
        help=shown,
        autocompletion=(lambda incomplete: [it for it in choices if it.startswith(incomplete)])
        if choices
        else None,
    )
    return Annotated[str | None, option]


def _reader(row: StreamSetting) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            if row.form is TABLE_SCHEMA:
                text = _schema_text(text)
            return row.from_human(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return read


def _schema_text(text: str) -> str:
    """Of a file. Raises ValueError."""
    from streamlog.lake.columns.schema_file import schema_in_file

    if text in ("", "none"):
        return ""
    try:
        found = str(schema_in_file(text))
        TableSchema.parse(found)
    except ConfigError as error:
        raise ValueError(f"{error.problem}; {error.remedy}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{text} is not UTF-8") from None
    return found
