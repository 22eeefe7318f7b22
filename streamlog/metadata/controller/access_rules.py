"""Who may do what: rules that are added and removed. Pure."""

from typing import Final

from streamlog.acl.filters import found
from streamlog.errors import InvalidRequest
from streamlog.metadata.commands import AddAccessRules, RemoveAccessRules
from streamlog.metadata.controller.decision import Decision
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import AccessRuleAdded, AccessRuleRemoved

RULES_MAX: Final = 10_000
"""In the metadata; every node has them in memory, and every snapshot."""


def change_rules(image: MetadataImage, command: AddAccessRules | RemoveAccessRules) -> Decision:
    """Raises InvalidRequest."""
    if isinstance(command, AddAccessRules):
        return _add(image, command)
    return _remove(image, command)


def _add(image: MetadataImage, command: AddAccessRules) -> Decision:
    """Raises InvalidRequest where there are too many."""
    new = [rule for rule in dict.fromkeys(command.rules) if rule not in image.rules]
    if len(image.rules) + len(new) > RULES_MAX:
        text = f"there are {len(image.rules)} access rules, and {RULES_MAX} may be: use prefixes"
        raise InvalidRequest(text)
    return Decision(tuple(AccessRuleAdded(rule=rule) for rule in new))


def _remove(image: MetadataImage, command: RemoveAccessRules) -> Decision:
    """Result ``{"removed": [...]}``: for each filter the rules that it matches. Raises
    InvalidRequest.
    """
    matched = []
    for wanted in command.filters:
        wanted.check()
        matched.append(found(image.rules, wanted))
    gone = dict.fromkeys(rule for rules in matched for rule in rules)
    return Decision(
        tuple(AccessRuleRemoved(rule=rule) for rule in gone),
        {"removed": [[rule.model_dump(mode="json") for rule in rules] for rules in matched]},
    )
