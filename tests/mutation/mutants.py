"""The mutants of a module: its functions with one small change each. Pure.

Only code that decides or changes something is changed. These are left alone: what is outside of functions (constants,
fields, defaults), annotations, docstrings, texts, ``__repr__`` and ``__str__``, ``assert``, the arguments of ``raise``,
and statements that log or count metrics.

Mutants that others subsume are left out: a test that finds ``a`` in place of ``a and b``, or ``b``, finds ``a or b``,
too; one that finds a condition to be always true, or always false, finds its opposite.
"""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Final, NamedTuple

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ORDERS: Final = ast.Lt | ast.LtE | ast.Gt | ast.GtE
ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
OTHER_FUNCTIONS: Final = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
NOT_SAFETY: Final = {"logger", "metrics", "_metrics", "tracer", "_tracer"}
"""What is called on these is read by people, not by the code."""
SHOWN_TO_PEOPLE: Final = {"__repr__", "__str__"}
SHOWN_CHARACTERS_MAX: Final = 90

TRUTHS: Final = ast.Compare | ast.BoolOp | ast.UnaryOp

PROBE: Final = "__reached__"
REMOVED: Final = "removed"


@dataclass(frozen=True)
class Mutant:
    """One change in one function."""

    module: str
    function: str
    """Its qualified name; of nested functions the outermost one's."""
    change: str
    """What is written there, and what the mutant has instead."""
    number: int
    """Of this change in the function: 0 unless it is possible at several places."""
    line: int
    """Where the statement begins that is changed."""
    key: str = field(repr=False)
    """Stays while the function's code stays."""

    def __str__(self) -> str:
        number = f" (the {self.number + 1}. of these)" if self.number else ""
        return f"{self.module}:{self.line} {self.function}: {self.change}{number}"


class _Edit(NamedTuple):
    """``parent``'s field ``name``, or the item ``place`` of it, becomes ``new``."""

    parent: ast.AST
    name: str
    place: int | None
    new: object
    change: str
    statement: ast.stmt | ast.ExceptHandler


class MutatedModule:
    """The source of a module, and what can be changed in it."""

    def __init__(self, module: str, path: Path) -> None:
        self.module = module
        self.path = path
        self._tree = ast.parse(path.read_text(), str(path))
        self._edits: dict[Mutant, _Edit] = {}
        for name, function in _functions(self._tree.body):
            self._add(name, function)

    @property
    def mutants(self) -> list[Mutant]:
        return list(self._edits)

    def compiled(self, mutant: Mutant) -> dict[tuple[str, int], CodeType]:
        """All functions of the mutated module, by qualified name and first line."""
        with _made(self._edits[mutant]):
            return functions_of(compile(self._tree, str(self.path), "exec", dont_inherit=True))

    def probed(self) -> dict[tuple[str, int], CodeType]:
        """The functions, which call the global ``PROBE`` with the line of each statement that they come to."""
        tree = ast.parse(self.path.read_text(), str(self.path))
        _Probes().visit(tree)
        return functions_of(
            compile(ast.fix_missing_locations(tree), str(self.path), "exec", dont_inherit=True)
        )

    def _add(self, name: str, function: FunctionNode) -> None:
        text = ast.unparse(function)
        numbers: Counter[str] = Counter()
        for edit in _edits(function):
            number = numbers[edit.change]
            numbers[edit.change] += 1
            identity = "\n".join([self.module, name, text, edit.change, str(number)])
            key = hashlib.sha256(identity.encode()).hexdigest()[:16]
            line = edit.statement.lineno
            self._edits[Mutant(self.module, name, edit.change, number, line, key)] = edit


class _Probes(ast.NodeTransformer):
    """Puts a probe before each statement of a function."""

    def __init__(self) -> None:
        self._depth = 0

    def visit(self, node: ast.AST) -> ast.AST:
        is_function = isinstance(node, FunctionNode)
        self._depth += is_function
        self.generic_visit(node)
        if self._depth:
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                    setattr(node, name, list(self._with_probes(block)))
            if isinstance(node, ast.ExceptHandler):
                node.body.insert(0, _probe(node))
        self._depth -= is_function
        return node

    def _with_probes(self, block: list[ast.stmt]) -> Iterator[ast.stmt]:
        for statement in block:
            if not isinstance(statement, ast.Nonlocal | ast.Global):
                yield _probe(statement)
            yield statement


def _probe(node: ast.stmt | ast.ExceptHandler) -> ast.stmt:
    call = ast.Call(ast.Name(PROBE, ast.Load()), [ast.Constant(node.lineno)], [])
    return ast.copy_location(ast.Expr(call), node)


def functions_of(code: CodeType) -> dict[tuple[str, int], CodeType]:
    found = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found[constant.co_qualname, constant.co_firstlineno] = constant
            found |= functions_of(constant)
    return found


def _functions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, FunctionNode]]:
    for node in body:
        if isinstance(node, FunctionNode):
            if node.name not in SHOWN_TO_PEOPLE:
                yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")


@contextmanager
def _made(edit: _Edit) -> Iterator[None]:
    before = getattr(edit.parent, edit.name)
    if edit.place is None:
        setattr(edit.parent, edit.name, edit.new)
    else:
        setattr(
            edit.parent, edit.name, [*before[: edit.place], edit.new, *before[edit.place + 1 :]]
        )
    try:
        yield
    finally:
        setattr(edit.parent, edit.name, before)


def _edits(function: FunctionNode) -> Iterator[_Edit]:
    known = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
    yield from _in_block(function, "body", known, is_guarded=False)


def _in_block(parent: ast.AST, name: str, known: set[str], *, is_guarded: bool) -> Iterator[_Edit]:
    for index, statement in enumerate(getattr(parent, name)):
        if _is_left_alone(statement):
            continue
        for new in _instead_of(statement, known, is_guarded=is_guarded):
            ast.copy_location(new, statement)
            ast.fix_missing_locations(new)
            shown = REMOVED if isinstance(new, ast.Pass) else _text(new)
            yield _Edit(parent, name, index, new, f"{_text(statement)} -> {shown}", statement)
        yield from _in_statement(statement, known)
        known |= _names_set(statement)


def _is_left_alone(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assert() | ast.Pass() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Global() | ast.Nonlocal():
            return True
        case ast.Expr(ast.Constant()):
            return True
        case ast.Expr(ast.Call(called)):
            return any(
                isinstance(node, ast.Name | ast.Attribute) and _last_name(node) in NOT_SAFETY
                for node in ast.walk(called)
            )
        case ast.Assign([ast.Name("extra")]):
            return True
    return False


def _instead_of(statement: ast.stmt, known: set[str], *, is_guarded: bool) -> Iterator[ast.stmt]:
    """Other statements."""
    match statement:
        case ast.Expr(ast.Call() | ast.Await()) | ast.Delete() | ast.Raise():
            yield ast.Pass()
        case ast.Assign([ast.Name(name)]) if name in known:
            yield ast.Pass()
        case ast.Assign([ast.Attribute() | ast.Subscript()]) if not isinstance(
            statement.value, ast.Name
        ):  # without the others nothing works
            yield ast.Pass()
        case ast.AnnAssign(ast.Subscript(), _, value) if value:
            yield ast.Pass()
        case ast.AugAssign():
            yield ast.Pass()
        case ast.Return() if is_guarded:
            yield ast.Pass()
        case ast.Return(value) if value and not isinstance(value, ast.Constant | TRUTHS):
            yield ast.Return(ast.Constant(None))
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()


def _in_statement(statement: ast.stmt | ast.ExceptHandler, known: set[str]) -> Iterator[_Edit]:
    if isinstance(statement, ast.Raise):
        return
    for name, value in ast.iter_fields(statement):
        if name in {"annotation", "returns", "decorator_list", "args", "type", "type_comment"}:
            continue
        if isinstance(value, ast.expr):
            if name == "test":
                yield from _conditions(statement, name, None, value, statement)
            if name == "iter":
                yield _edit(statement, name, None, ast.Tuple([], ast.Load()), value, statement)
            yield from _in_expression(statement, name, None, value, statement)
        elif isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            is_guarded = not isinstance(statement, ast.With | ast.AsyncWith | FunctionNode)
            inner = known if not isinstance(statement, FunctionNode) else set(known)
            yield from _in_block(statement, name, inner, is_guarded=is_guarded)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, ast.expr):
                    yield from _in_expression(statement, name, index, item, statement)
                elif isinstance(item, ast.ExceptHandler):
                    yield _handler_edit(item)
                    yield from _in_statement(item, known)
                elif isinstance(item, ast.withitem):
                    expression = item.context_expr
                    yield from _in_expression(item, "context_expr", None, expression, statement)
                elif isinstance(item, ast.match_case):
                    if item.guard is not None:
                        yield from _conditions(item, "guard", None, item.guard, statement)
                        yield from _in_expression(item, "guard", None, item.guard, statement)
                    yield from _in_block(item, "body", known, is_guarded=True)
    if isinstance(statement, ast.AugAssign) and type(statement.op) in ARITHMETIC:
        new = ARITHMETIC[type(statement.op)]()
        shown = _text(ast.AugAssign(statement.target, new, statement.value))
        change = f"{_text(statement)} -> {shown}"
        yield _Edit(statement, "op", None, new, change, statement)


def _handler_edit(handler: ast.ExceptHandler) -> _Edit:
    raised: ast.stmt = ast.Raise()
    ast.copy_location(raised, handler.body[0])
    head = f"except {ast.unparse(handler.type)}" if handler.type else "except"
    return _Edit(
        handler, "body", None, [raised], f"{head}: {_text(handler.body[0])} -> raise", handler
    )


def _conditions(
    parent: ast.AST,
    name: str,
    index: int | None,
    test: ast.expr,
    statement: ast.stmt | ast.ExceptHandler,
) -> Iterator[_Edit]:
    """Always true and always false; a loop's is not made true, because it would only never end."""
    if isinstance(test, ast.Constant):
        return
    if not isinstance(statement, ast.While) or parent is not statement:
        yield _edit(parent, name, index, ast.Constant(True), test, statement)
    yield _edit(parent, name, index, ast.Constant(False), test, statement)


def _edit(
    parent: ast.AST,
    name: str,
    index: int | None,
    new: ast.expr,
    old: ast.expr,
    statement: ast.stmt | ast.ExceptHandler,
) -> _Edit:
    ast.copy_location(new, old)
    ast.fix_missing_locations(new)
    return _Edit(parent, name, index, new, f"{_text(old)} -> {_text(new)}", statement)


def _in_expression(
    parent: ast.AST,
    name: str,
    index: int | None,
    node: ast.expr,
    statement: ast.stmt | ast.ExceptHandler,
) -> Iterator[_Edit]:
    if isinstance(node, ast.JoinedStr) or (
        isinstance(parent, ast.UnaryOp) and isinstance(node, ast.Constant)
    ):
        return
    is_condition = name in {"test", "guard", "ifs"} or isinstance(parent, ast.BoolOp)
    for new in _other_expressions(node, is_condition=is_condition):
        yield _edit(parent, name, index, new, node, statement)
    if isinstance(node, ast.IfExp):
        yield from _conditions(node, "test", None, node.test, statement)
    for child_name, value in ast.iter_fields(node):
        if isinstance(value, ast.expr):
            yield from _in_expression(node, child_name, None, value, statement)
        elif isinstance(value, list):
            for child_index, item in enumerate(value):
                if isinstance(item, ast.expr):
                    yield from _in_expression(node, child_name, child_index, item, statement)
                elif isinstance(item, ast.keyword):
                    yield from _in_expression(item, "value", None, item.value, statement)
                elif isinstance(item, ast.comprehension):
                    yield from _in_expression(item, "iter", None, item.iter, statement)
                    for place, test in enumerate(item.ifs):
                        yield from _conditions(item, "ifs", place, test, statement)
                        yield from _in_expression(item, "ifs", place, test, statement)


def _other_expressions(node: ast.expr, *, is_condition: bool) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(left, operations, rights):
            for place, operation in enumerate(operations):
                if is_condition and len(operations) == 1 and not isinstance(operation, ORDERS):
                    continue
                changed = [*operations]
                changed[place] = COMPARISONS[type(operation)]()
                yield ast.Compare(left, changed, rights)
        case ast.BoolOp(operation, values):
            for place in range(len(values)):
                rest = values[:place] + values[place + 1 :]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(operation, rest)
        case ast.UnaryOp(ast.Not(), operand) if not is_condition:
            yield operand
        case ast.UnaryOp(ast.USub(), ast.Constant(int() as value)):
            yield ast.Constant(1 - value)
        case ast.BinOp(left, operation, right) if type(operation) in ARITHMETIC:
            yield ast.BinOp(left, ARITHMETIC[type(operation)](), right)
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() as value):
            yield ast.Constant(value + 1)
            if value > 1:
                yield ast.Constant(value - 1)
        case ast.Call(ast.Name(called), arguments, keywords) if called in OTHER_FUNCTIONS:
            kept = keywords if called in {"min", "max"} else []
            yield ast.Call(ast.Name(OTHER_FUNCTIONS[called], ast.Load()), arguments, kept)


def _names_set(statement: ast.stmt) -> set[str]:
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _last_name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _text(node: ast.AST) -> str:
    """In one line."""
    if isinstance(node, ast.AugAssign):
        node = ast.fix_missing_locations(node)
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}..."
