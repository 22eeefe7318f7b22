"""The checks of ``python -m tools.lint`` find what they look for."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import lint


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes the package of one module with this text."""
    monkeypatch.setattr(lint, "ROOT", tmp_path)
    monkeypatch.setattr(lint, "PACKAGE", tmp_path / "streamlog")
    monkeypatch.setattr(lint, "TEXTS", ("streamlog/**/*.py",))
    module = tmp_path / "streamlog" / "cli" / "module.py"
    module.parent.mkdir(parents=True)
    (module.parent / "__init__.py").write_text("")
    monkeypatch.setattr(lint, "product", lambda: (module,))

    def write(text: str) -> None:
        module.write_text(text)

    return write


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (lint.a_class_name_means_one_thing, "class Log: ...\nclass Log: ..."),
        (lint.safety_does_not_rest_on_assertions, "assert size > 0"),
        (lint.tasks_have_a_group, "asyncio.create_task(run())"),
        (lint.tasks_have_a_group, "self.loop.create_task(run())"),
        (lint.tasks_have_a_group, "asyncio.ensure_future(run())"),
        (lint.batches_are_opened_in_one_way, "import gzip"),
        (lint.batches_are_opened_in_one_way, "from streamlog.record.compression import decompress"),
        (lint.commands_print_by_the_functions_that_escape, "print(name)"),
        (lint.warnings_have_a_code, "logger.warning('something else')"),
        (lint.warnings_have_a_code, "logger.log(level, 'one' if it else OTHER)"),
        (lint.warnings_have_a_code, "Finding(AREA, 'warning', said)"),
        (lint.warnings_have_a_code, "Finding(AREA, CRITICAL, said)"),
        (lint.words_are_plain, "# It is done hitherto."),
        (lint.named_modules_exist, "# See `cli/gone.py`."),
        (lint.named_modules_exist, "# See `streamlog/cli/gone`."),
        (lint.named_modules_exist, "# See ``cli.gone``."),
    ],
)
def test_a_problem_is_found(
    check: Callable[[], lint.Problems], text: str, package: Callable[[str], None]
) -> None:
    package(text)
    assert any("module.py:1" in problem for problem in check())


def test_a_module_a_name_in_it_and_a_setting_may_be_named(package: Callable[[str], None]) -> None:
    package("HERE = 1  # `cli`, `cli/module.py`, `streamlog.cli.module`, `cli.module.HERE`")
    assert list(lint.named_modules_exist()) == []
    assert lint.is_setting("log.sync")
    assert not lint.is_setting("log.gone")


def test_a_package_lists_modules_that_it_has(package: Callable[[str], None]) -> None:
    package("")
    init = lint.PACKAGE / "cli" / "__init__.py"
    for text, is_right in (
        ("- ``module`` is there. See ``others``.", True),
        ("- ``module``, ``gone`` are there", False),
        ("- ``module`` is there;\n  ``gone`` too", False),
        ("- ``module`` is there; ``gone`` too", False),
        ("- ``module`` is\n  there; ``gone`` too", False),
        ("- ``gone`` is there", False),
    ):
        init.write_text(f'"""A package.\n\n{text}\n"""')
        lint.tree.cache_clear()
        assert (list(lint.listed_modules_exist()) == []) == is_right, text


def test_a_circle_is_found() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b"}}
    assert lint.circle_of("b", imports) == lint.circle_of("c", imports) == {"b", "c"}
    assert lint.circle_of("a", imports) == set()


@pytest.mark.parametrize(
    "text", ["x is not None", "isinstance(x, int)", "x is None or x.y is not None"]
)
def test_an_assertion_may_narrow_a_type(text: str) -> None:
    assert lint.narrows_a_type(ast.parse(text, mode="eval").body)
