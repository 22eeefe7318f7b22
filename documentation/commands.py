"""The site's reference of the commands, out of the commands themselves when it is built."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

MARK: Final = "<!-- every command -->"


def with_commands(markdown: str) -> str:
    """``markdown`` with the reference in the place of the mark."""
    if MARK not in markdown:
        return markdown
    from typer.main import get_command

    from streamlog.cli.program import app

    commands: Mapping[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    return markdown.replace(MARK, "\n".join(_of_all("streamlog", commands, level=2)))


def _of_all(before: str, commands: Mapping[str, Any], *, level: int) -> Iterator[str]:
    for name, command in commands.items():
        if command.hidden:
            continue
        path = f"{before} {name}"
        yield f"{'#' * level} {path}\n\n{_text(command.help)}\n"
        inner = getattr(command, "commands", None)
        if inner is not None:
            yield from _of_all(path, inner, level=level + 1)
        else:
            yield from _parameters(path, command.params)


def _parameters(path: str, params: list[Any]) -> Iterator[str]:
    shown = [it for it in params if not it.hidden]
    arguments = [it for it in shown if it.param_type_name == "argument"]
    names = [f"[{it.name.upper()}]" if it.default else it.name.upper() for it in arguments]
    yield f"```sh\n{' '.join([path, *names, '[OPTIONS]'])}\n```\n"
    if shown:
        yield "| | default | |\n|---|---|---|"
        for it in shown:
            name = it.name.upper() if it in arguments else ", ".join([*it.opts, *it.secondary_opts])
            yield f"| `{name}` | {_default(it)} | {_cell(it)} |"
        yield ""


def _default(param: Any) -> str:
    value = param.default
    return "" if value in (None, (), False) or callable(value) else f"`{value}`"


def _cell(param: Any) -> str:
    text = _text(param.help).replace("|", "\\|")
    return f"{text} (`{param.envvar}`)" if param.envvar else text


def _text(text: str | None) -> str:
    """One paragraph; what looks like an element of HTML does not become one."""
    return " ".join((text or "").split()).replace("<", "&lt;").replace("*", "\\*")
