"""Style that a machine enforces: sizes, names, words, layers."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "streamlog"
DOCSTRING_LINES_MAX = 30
BANNED_NAMES = {"utils", "util", "helpers", "helper", "manager", "base", "common", "misc"}

OWN = sorted(
    path
    for folder in ("streamlog", "spark", "demo", "benchmarks", "compatibility", "tests")
    for path in (ROOT / folder).rglob("*.py*")
    if path.suffix in {".py", ".pyx", ".pxd"}
)
SOURCES = [path for path in OWN if path.suffix == ".py"]

MODULES = {
    ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
    for root, package in ((ROOT, "streamlog"), (ROOT / "spark", "pyspark_streamlog"))
    for path in sorted((root / package).rglob("*.py"))
}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text()))


def test_files_are_named_for_what_they_hold() -> None:
    assert [name_of(path) for path in OWN if path.stem.strip("_") in BANNED_NAMES] == []


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("__init__.py")), ids=name_of)
def test_packages_say_what_they_are_and_hold_no_code(path: Path) -> None:
    tree = ast.parse(path.read_text())
    docstring = ast.get_docstring(tree)
    assert docstring
    assert len(docstring.splitlines()) <= DOCSTRING_LINES_MAX
    for node in tree.body[1:]:
        assert isinstance(node, ast.ImportFrom | ast.Assign), "move code into a module"


def test_safety_does_not_rest_on_assertions() -> None:
    """``python -O`` drops them: an assertion may tell mypy a type, and nothing else. Where one of
    these is dropped, the next line fails on the None.
    """
    spark = ROOT / "spark" / "pyspark_streamlog"
    checks = [
        f"{name_of(path)}:{node.lineno}: {ast.unparse(node)}"
        for path in SOURCES
        if PACKAGE in path.parents or spark in path.parents
        for node in nodes(path)
        if isinstance(node, ast.Assert) and not narrows_a_type(node.test)
    ]
    assert checks == [], "raise BrokenInvariant, or an error of the request"


def narrows_a_type(test: ast.expr) -> bool:
    match test:
        case ast.BoolOp(op=ast.And(), values=values):
            return all(map(narrows_a_type, values))
        case ast.BoolOp(op=ast.Or(), values=[first, *others]):
            return ast.unparse(first).endswith(" is None") and all(map(narrows_a_type, others))
        case ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return True
        case ast.Call(func=ast.Name(id="isinstance")):
            return True
    return False


def test_tasks_have_a_group() -> None:
    """A task outside a group is one whose failure nobody sees."""
    bare = [
        f"{name_of(path)}:{node.lineno}"
        for path in SOURCES
        for node in nodes(path)
        if PACKAGE in path.parents and isinstance(node, ast.Call) and makes_bare_task(node.func)
    ]
    assert bare == []


def makes_bare_task(function: ast.expr) -> bool:
    name = ast.unparse(function)
    owner, _, method = name.rpartition(".")
    if method == "create_task":
        return not owner or "asyncio" in owner or "loop" in owner
    return method == "ensure_future"


def test_arrows_point_down_and_cores_are_pure() -> None:
    program = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run(
        [str(program), "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports for types and imports inside of functions count: a circle of either is one that a
    reader walks.
    """
    imports = {name: imported(name, path) for name, path in MODULES.items()}
    circles = {frozenset(circle) for name in imports if (circle := circle_of(name, imports))}
    assert sorted(sorted(circle) for circle in circles) == []


def imported(importer: str, path: Path) -> set[str]:
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                whole = f"{node.module}.{name.name}"
                found.add(whole if whole in MODULES else node.module)
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return (found & MODULES.keys()) - {importer}


def circle_of(start: str, imports: dict[str, set[str]]) -> set[str]:
    """The modules that ``start`` leads to and that lead back to it."""
    ahead = reached(start, imports)
    if start not in ahead:
        return set()
    return {name for name in ahead if start in reached(name, imports)}


def reached(start: str, imports: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    pending = [start]
    while pending:
        new = imports[pending.pop()] - found
        found |= new
        pending += new
    return found


def test_the_client_is_light() -> None:
    """A Spark executor loads it; it must not bring a server along."""
    program = (
        "import pkgutil, sys, streamlog.client as client\n"
        "for module in pkgutil.iter_modules(client.__path__):\n"
        "    __import__('streamlog.client.' + module.name)\n"
        "heavy = ('nats', 'streamlog.partition', 'streamlog.kafka', 'aiohttp')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
