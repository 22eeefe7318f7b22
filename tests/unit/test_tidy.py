"""Style that a machine enforces: sizes, names, words, layers."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "streamlog"
FILE_LINES_MAX = 500
TEST_FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
DOCSTRING_LINES_MAX = 30
BANNED_NAMES = {"utils", "util", "helpers", "helper", "manager", "base", "common", "misc"}

OWN = sorted(
    path
    for folder in ("streamlog", "spark", "benchmarks", "tests")
    for path in (ROOT / folder).rglob("*.py*")
    if path.suffix in {".py", ".pyx", ".pxd"}
)
SOURCES = [path for path in OWN if path.suffix == ".py"]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", OWN, ids=name_of)
def test_files_are_short_and_named_for_what_they_hold(path: Path) -> None:
    limit = TEST_FILE_LINES_MAX if "tests" in path.parts else FILE_LINES_MAX
    assert len(path.read_text().splitlines()) <= limit
    assert path.stem.strip("_") not in BANNED_NAMES


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_functions_are_short(path: Path) -> None:
    for function in functions(path):
        assert function.end_lineno is not None
        lines = function.end_lineno - function.lineno + 1
        assert lines <= FUNCTION_LINES_MAX, f"{function.name} has {lines} lines"


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("__init__.py")), ids=name_of)
def test_packages_say_what_they_are_and_hold_no_code(path: Path) -> None:
    tree = ast.parse(path.read_text())
    docstring = ast.get_docstring(tree)
    assert docstring
    assert len(docstring.splitlines()) <= DOCSTRING_LINES_MAX
    for node in tree.body[1:]:
        assert isinstance(node, ast.ImportFrom | ast.Assign), "move code into a module"


@pytest.mark.parametrize("path", [path for path in SOURCES if PACKAGE in path.parents], ids=name_of)
def test_tasks_have_a_group(path: Path) -> None:
    """A task outside a group is one whose failure nobody sees."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        assert node.func.attr != "ensure_future", f"line {node.lineno}"
        if node.func.attr == "create_task":
            owner = ast.unparse(node.func.value)
            assert owner.endswith(("tasks", "group")), f"line {node.lineno}: {owner}.create_task"


def test_arrows_point_down_and_cores_are_pure() -> None:
    program = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run(
        [str(program), "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_client_is_light() -> None:
    """A Spark executor loads it; it must not bring a server along."""
    program = (
        "import pkgutil, sys, streamlog.client as client\n"
        "for module in pkgutil.iter_modules(client.__path__):\n"
        "    __import__('streamlog.client.' + module.name)\n"
        "heavy = ('nats', 'streamlog.partition', 'streamlog.server', 'aiohttp')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
