from pathlib import Path
from textwrap import dedent
from types import CodeType

import pytest

from tests.mutation.mutants import MutatedModule


def mutated(folder: Path, source: str) -> MutatedModule:
    path = folder / "planted.py"
    path.write_text(dedent(source))
    return MutatedModule("planted", path)


def changes(folder: Path, body: str) -> set[str]:
    source = "def planted(a, b, items, logger):\n" + "".join(
        f"    {line}\n" for line in body.splitlines()
    )
    return {mutant.change for mutant in mutated(folder, source).mutants}


def code_of(codes: dict[tuple[str, int], CodeType], name: str) -> CodeType:
    (code,) = [code for (qualified, _), code in codes.items() if qualified == name]
    return code


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return a < b", {"a < b -> a <= b"}),
        ("return a == b", {"a == b -> a != b"}),
        ("return a is None", {"a is None -> a is not None"}),
        ("return 0 <= a < 7", {"0 <= a < 7 -> 0 < a < 7", "0 <= a < 7 -> 0 <= a <= 7",
                               "0 -> 1", "7 -> 8", "7 -> 6"}),
        ("return not a", {"not a -> a"}),
        ("return a and b", {"a and b -> a", "a and b -> b"}),
        ("return a and b or items", {"a and b or items -> a and b", "a and b or items -> items",
                                     "a and b -> a", "a and b -> b"}),
        ("a += b", {"a += b -> removed", "a += b -> a -= b"}),
        ("a[0] = b[-1]", {"a[0] = b[-1] -> removed", "0 -> 1", "-1 -> 0"}),
        ("items.append(a)", {"items.append(a) -> removed"}),
        ("return max(a, b)", {"return max(a, b) -> return None", "max(a, b) -> min(a, b)"}),
        ("if a:\n    return\nb()", {"a -> True", "a -> False", "return -> removed", "b() -> removed"}),
        ("while a:\n    b()", {"a -> False", "b() -> removed"}),
        ("if a:\n    raise ValueError(f'{b - 1}', True)",
         {"a -> True", "a -> False", "raise ValueError(f'{b - 1}', True) -> removed"}),
        ("for a in items:\n    continue", {"items -> ()", "continue -> break"}),
        ("return [a for a in items if a > 0]",
         {"return [a for a in items if a > 0] -> return None", "a > 0 -> True", "a > 0 -> False",
          "a > 0 -> a >= 0", "0 -> 1"}),
        ("try:\n    a()\nexcept OSError:\n    b()",
         {"a() -> removed", "b() -> removed", "except OSError: b() -> raise"}),
        ("match a:\n    case b if b > 1:\n        return False",
         {"b > 1 -> True", "b > 1 -> False", "b > 1 -> b >= 1", "1 -> 2", "return False -> removed",
          "False -> True"}),
    ],
)  # fmt: skip
def test_what_is_changed(body: str, expected: set[str], tmp_path: Path) -> None:
    assert changes(tmp_path, body) == expected


@pytest.mark.parametrize(
    "body",
    [
        '"""What it does, 7 times."""',
        "assert a == 7",
        "logger.warning('%s', a + 1)",
        "extra = {'a': a + 1}",
        "items: list[int]",
        "raise ValueError(a + 1)\n",
    ],
)
def test_what_is_left_alone(body: str, tmp_path: Path) -> None:
    assert changes(tmp_path, body) <= {f"{body.strip()} -> removed"} - {"assert a == 7 -> removed"}


def test_what_is_outside_of_functions_and_what_is_shown_is_left_alone(tmp_path: Path) -> None:
    source = """
        LIMIT = 7

        class Planted:
            limit: int = 7

            def __repr__(self):
                return str(self.limit + 1)
    """
    assert mutated(tmp_path, source).mutants == []


def test_a_mutant_is_compiled_alone(tmp_path: Path) -> None:
    module = mutated(
        tmp_path,
        """
        class Planted:
            def at(self, a, b):
                return a < b, a + b
        """,
    )
    results = {}
    for mutant in module.mutants:
        values: dict[str, object] = {}
        exec(compile(module.path.read_text(), "", "exec"), values)
        at = values["Planted"].at  # type: ignore[attr-defined]
        at.__code__ = code_of(module.compiled(mutant), "Planted.at")
        results[mutant.change] = at(None, 1, 1)
    assert results == {
        "return (a < b, a + b) -> return None": None,
        "a < b -> a <= b": (True, 2),
        "a + b -> a - b": (False, 0),
    }


def test_the_key_stays_while_the_function_stays(tmp_path: Path) -> None:
    function = "def planted(a):\n    return a < 1, a < 1\n"
    first = mutated(tmp_path, function).mutants
    assert len({mutant.key for mutant in first}) == len(first) == 5
    assert [m.number for m in first if m.change == "a < 1 -> a <= 1"] == [0, 1]
    moved = mutated(tmp_path, "def other(b):\n    return b\n\n\n" + function).mutants
    assert {mutant.key for mutant in first} < {mutant.key for mutant in moved}
    other = mutated(tmp_path, function.replace("1, a", "2, a")).mutants
    assert not {mutant.key for mutant in first} & {mutant.key for mutant in other}


def test_probes_tell_the_lines(tmp_path: Path) -> None:
    module = mutated(
        tmp_path,
        """
        def planted(a):
            if a:
                return 1
            elif a is None:
                a = 2
            else:
                for b in ():
                    a += b
            try:
                raise ValueError
            except ValueError:
                return [it for it in range(3) if it > a]
        """,
    )
    reached: list[int] = []
    values: dict[str, object] = {"__reached__": reached.append}
    exec(compile(module.path.read_text(), "", "exec"), values)
    planted = values["planted"]
    planted.__code__ = code_of(module.probed(), "planted")  # type: ignore[attr-defined]
    assert planted(0) == [1, 2]  # type: ignore[operator]
    assert reached == [3, 5, 8, 10, 11, 12, 13]
