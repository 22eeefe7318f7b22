"""``python -m tools.lint``: what ruff, mypy and import-linter cannot check. A line for each problem.

A check is a generator in ``CHECKS``; the words are in ``words.toml``.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, TypeGuard

from streamlog.config import Settings

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "streamlog"
SPARK: Final = ROOT / "spark"
OWN: Final = ("streamlog", "spark", "demo", "benchmarks", "compatibility", "documentation", "tests")
BANNED_NAMES: Final = {"utils", "util", "helpers", "helper", "manager", "base", "common", "misc"}
WORDS: Final = Path(__file__).with_name("words.toml")
TEXTS: Final = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**/*.md",
                "streamlog/**/*.py", "streamlog/**/*.pyx", "spark/**/*.py")  # fmt: skip

OF_OTHERS: Final = {"glossary.md", "ledger.md"}
"""Pages with names of others that look like ours: Kafka's settings, subjects of NATS."""
OPENERS: Final = {"streamlog/record/compression.py", "streamlog/record/codec.py"}
"""The only files that may decompress: everything else would have no limit."""
PRINTERS: Final = {"streamlog/cli/output.py", "streamlog/cli/bench.py"}
"""The only commands' files that print: they escape what a terminal would obey, or print no names."""

WARNING: Final = {"warning", "error", "critical", "exception"}
SEVERITIES: Final = {"critical", "warning", "note", "CRITICAL", "WARNING", "NOTE"}

Problems = Iterator[str]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(path)))


@cache
def product() -> tuple[Path, ...]:
    """What is installed."""
    return tuple(sorted([*PACKAGE.rglob("*.py"), *(SPARK / "pyspark_streamlog").rglob("*.py")]))


# Names and packages


def files_are_named_for_what_they_hold() -> Problems:
    for folder in OWN:
        for path in sorted((ROOT / folder).rglob("*.p*")):
            if (
                path.suffix in {".py", ".pyx", ".pxd", ".pxi"}
                and path.stem.strip("_") in BANNED_NAMES
            ):
                yield f"{name_of(path)}: name the file for what it holds"


def packages_hold_no_code() -> Problems:
    for path in sorted(PACKAGE.rglob("__init__.py")):
        if not ast.get_docstring(tree(path)):
            yield f"{name_of(path)}:1: say what the package is"
        for node in tree(path).body[1:]:
            if not isinstance(node, ast.ImportFrom | ast.Assign):
                yield f"{name_of(path)}:{node.lineno}: move the code into a module"


def a_class_name_means_one_thing() -> Problems:
    places: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{name_of(path)}:{node.lineno}")
    for name, found in sorted(places.items()):
        if len(found) > 1:
            yield f"{' '.join(found)}: more than one class is called {name}"


# Statements


def safety_does_not_rest_on_assertions() -> Problems:
    """``python -O`` drops them: an assertion may tell mypy a type, and nothing else. Where one of
    these is dropped, the next line fails on the None.
    """
    for path in product():
        for node in nodes(path):
            if isinstance(node, ast.Assert) and not narrows_a_type(node.test):
                yield f"{name_of(path)}:{node.lineno}: raise BrokenInvariant, or an error of the request"


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


def tasks_have_a_group() -> Problems:
    """Nobody sees the failure of a task outside a group."""
    for path in product():
        for node in nodes(path):
            if isinstance(node, ast.Call) and makes_bare_task(node.func):
                yield f"{name_of(path)}:{node.lineno}: start the task in a task group"


def makes_bare_task(function: ast.expr) -> bool:
    match function:
        case ast.Name(id="create_task" | "ensure_future") | ast.Attribute(attr="ensure_future"):
            return True
        case ast.Attribute(value=owner, attr="create_task"):
            name = ast.unparse(owner)
            return "asyncio" in name or "loop" in name
    return False


# Imports


def no_module_imports_itself_by_way_of_others() -> Problems:
    """Imports for types and imports inside of functions count: a reader walks these circles, too."""
    modules = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for root in (ROOT, SPARK)
        for path in product()
        if path.is_relative_to(root / ("streamlog" if root is ROOT else "pyspark_streamlog"))
    }
    imports = {name: imported(name, path, modules) for name, path in modules.items()}
    circles = {frozenset(circle) for name in imports if (circle := circle_of(name, imports))}
    for each in circles:
        yield f"an import circle: {', '.join(sorted(each))}"


def imported(importer: str, path: Path, modules: dict[str, Path]) -> set[str]:
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                whole = f"{node.module}.{name.name}"
                found.add(whole if whole in modules else node.module)
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return (found & modules.keys()) - {importer}


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


def batches_are_opened_in_one_way() -> Problems:
    for path in product():
        for node in nodes(path):
            if not isinstance(node, ast.Import | ast.ImportFrom) or name_of(path) in OPENERS:
                continue
            names = {it.name for it in node.names} | {getattr(node, "module", None) or ""}
            if names & {"decompress", "cramjam", "gzip", "lzma", "bz2"}:
                yield f"{name_of(path)}:{node.lineno}: open batches by record.opening, within its limit"


def commands_print_by_the_functions_that_escape() -> Problems:
    for path in sorted((PACKAGE / "cli").rglob("*.py")):
        for node in nodes(path):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in {"print", "Console"}
                and name_of(path) not in PRINTERS
            ):
                yield f"{name_of(path)}:{node.lineno}: print by cli.output"


# Log lines


def warnings_have_a_code() -> Problems:
    """What is worth a warning is logged as a condition, which has a code and a remedy; so is every
    finding that something is wrong.
    """
    for path in sorted(PACKAGE.rglob("*.py")):
        for call in nodes(path):
            event = logged(call)
            if event is not None and is_text(event):
                yield (
                    f"{name_of(path)}:{event.lineno}: declare a Condition, and log that; "
                    "CONTRIBUTING.md, A condition"
                )
            if is_uncoded_finding(call):
                yield f"{name_of(path)}:{call.lineno}: make it by Finding.of, with its condition"


def logged(call: ast.AST) -> ast.expr | None:
    """The event of a call that logs a warning or worse, or at a level that it works out."""
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="logger"), attr=name), args=[event, *_]):
            if name in WARNING:
                return event
            if name == "log" and len(call.args) > 1:
                return call.args[1]
    return None


def is_text(event: ast.expr) -> bool:
    """Or one of two texts."""
    match event:
        case ast.IfExp(body=body, orelse=other):
            return is_text(body) or is_text(other)
        case ast.JoinedStr() | ast.Constant():
            return True
    return False


def is_uncoded_finding(call: ast.AST) -> TypeGuard[ast.Call]:
    match call:
        case ast.Call(func=ast.Name(id="Finding"), args=[_, severity, *_]):
            return ast.unparse(severity).strip("'") in SEVERITIES
    return False


# Words


def words_are_plain() -> Problems:
    rules = tomllib.loads(WORDS.read_text())
    found: dict[str, list[str]] = {}
    words = sorted({*rules["instead"], *rules["at_most"]}, key=len, reverse=True)
    pattern = re.compile(rf"\b({'|'.join(words)})\b", re.IGNORECASE)
    for path in sorted({path for text in TEXTS for path in ROOT.glob(text)}):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for match in pattern.finditer(line):
                found.setdefault(match[1].lower(), []).append(f"{name_of(path)}:{number}")
    for word, places in sorted(found.items()):
        limit = rules["at_most"].get(word, 0)
        if len(places) > limit:
            hint = rules["instead"].get(word, "another word")
            where = f"{len(places)} times, {limit} at most" if limit else ", ".join(places)
            yield f"{word!r}: write {hint} ({where})"


# Paths


def named_modules_exist() -> Problems:
    """What is in backticks and looks like a module of streamlog: `ingest/parser.pyx`, `metadata/controller`,
    `ingest.parser`, `streamlog/cli/output.py`. A module may be followed by names that are in it.
    """
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    path_like = re.compile(
        r"`((?:streamlog[/.])?(?:" + "|".join(sorted(rooms)) + r")(?:[/.]\w+)+)/?`"
    )
    for path in sorted({path for text in TEXTS for path in ROOT.glob(text)}):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for match in path_like.finditer(line):
                name = match[1]
                is_known = (
                    path_exists(name) if "/" in name else path.name in OF_OTHERS or is_there(name)
                )
                if not is_known:
                    yield f"{name_of(path)}:{number}: there is no {name}"


def listed_modules_exist() -> Problems:
    """The docstring of a package lists its modules: ``- ``reader``, ``writer`` what they are; ``codec`` ...``."""
    leading = re.compile(r"``\w+``(?:(?:, | and )``\w+``)*")
    for path in sorted(PACKAGE.rglob("__init__.py")):
        here = {it.stem for it in path.parent.iterdir()}
        text = ast.get_docstring(tree(path)) or ""
        for item in re.findall(r"^- (.*(?:\n  .*)*)", text, re.MULTILINE):
            first = leading.match(item)
            names = re.findall(r"``(\w+)``", first[0]) if first else []
            names += re.findall(r";\s+``(\w+)``", item)
            for name in names:
                if name not in here:
                    yield f"{name_of(path)}:1: there is no module {name} in it"


def path_exists(name: str) -> bool:
    """Of a file or folder, with its suffix or without; from the root, or below streamlog."""
    places = (ROOT / name, PACKAGE / name)
    return any(it.exists() or any(it.parent.glob(f"{it.name}.py*")) for it in places)


def is_there(name: str) -> bool:
    """A package or module of streamlog, a name in one, or a setting."""
    names = name.removeprefix("streamlog.").split(".")
    if names[-1] == "py":  # a file of another folder: the text says which
        return True
    place = PACKAGE
    while names and (place / names[0]).is_dir():
        place /= names.pop(0)
    if not names:
        return True
    for suffix in (".py", ".pyx"):
        module = place / f"{names[0]}{suffix}"
        if module.exists():
            text = module.read_text()
            return all(re.search(rf"\b{word}\b", text) for word in names[1:])
    package = (place / "__init__.py").read_text()
    return re.search(rf"\b{names[0]}\b", package) is not None or is_setting(name)


def is_setting(name: str) -> bool:
    section, _, key = name.partition(".")
    found = Settings.model_fields.get(section)
    fields = getattr(found and found.annotation, "model_fields", {})
    return key in fields


CHECKS: Final[tuple[Callable[[], Problems], ...]] = (
    files_are_named_for_what_they_hold,
    packages_hold_no_code,
    a_class_name_means_one_thing,
    safety_does_not_rest_on_assertions,
    tasks_have_a_group,
    no_module_imports_itself_by_way_of_others,
    batches_are_opened_in_one_way,
    commands_print_by_the_functions_that_escape,
    warnings_have_a_code,
    words_are_plain,
    named_modules_exist,
    listed_modules_exist,
)


def main() -> None:
    problems = [problem for check in CHECKS for problem in check()]
    print("\n".join(problems), file=sys.stderr) if problems else print("tidy")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
