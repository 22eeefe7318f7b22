"""Answers about rights are remembered within one limit, for all principals together."""

from streamlog.acl.authorizer import Authorizer
from streamlog.acl.rules import Operation, ResourceType, RuleBook
from streamlog.authz.decision_cache import ENTRY_BYTES, NAME_CHARS_MAX, DecisionCache, Question
from tests.restricted import rule


class World:
    def __init__(self, entries_max: int = 10) -> None:
        self.rules = Authorizer((RuleBook.of(rule("read topic a")),))
        self.findings = DecisionCache(lambda: self.rules, bytes_max=2 * entries_max * ENTRY_BYTES)
        self.asked: list[Question] = []

    def ask(self, name: str, principal: str = "User:alice") -> bool:
        kind = ResourceType.TOPIC
        question = Question(principal, "10.0.0.1", Operation.READ, kind, name)

        def find(rules: Authorizer) -> bool:
            self.asked.append(question)
            return rules.allows(principal, "10.0.0.1", Operation.READ, kind, name)

        return self.findings.answer(question, find)


def test_an_answer_is_found_once_until_the_rules_change() -> None:
    world = World()
    assert [world.ask("a"), world.ask("a"), world.ask("b"), world.ask("b")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert len(world.asked) == 2
    world.rules = Authorizer((RuleBook.of(rule("read topic b")),))
    assert [world.ask("a"), world.ask("b")] == [False, True]


def test_what_is_remembered_is_bounded_for_all_principals_together() -> None:
    world = World()
    for number in range(1_000):
        world.ask("orders", principal=f"User:{number}")
    assert len(world.findings) <= 20


def test_what_is_asked_for_again_and_again_stays() -> None:
    world = World()
    for number in range(100):
        world.ask("a")
        world.ask(f"t{number}")
    assert sum(it.name == "a" for it in world.asked) == 1


def test_long_names_take_more_and_those_of_nothing_are_not_remembered() -> None:
    world = World()
    world.ask("x" * (NAME_CHARS_MAX + 1))
    assert len(world.findings) == 0
    for number in range(10):
        world.ask(f"{number}" * NAME_CHARS_MAX)
    assert len(world.findings) <= 4
