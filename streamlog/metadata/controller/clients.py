"""What concerns clients: access rules, quotas, users' credentials, producer ids. Pure."""

from typing import Final

from streamlog.acl.filters import found
from streamlog.authn.scram import Scram
from streamlog.errors import InvalidRequest
from streamlog.metadata.commands import (
    AddAccessRules,
    AllocateProducerIds,
    AlterQuota,
    AlterUser,
    RemoveAccessRules,
)
from streamlog.metadata.controller.decision import Decision
from streamlog.metadata.image.credential import USERS_MAX, check_size, check_user_name
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.quota import NO_QUOTA, QUOTAS_MAX
from streamlog.metadata.image.records import (
    AccessRuleAdded,
    AccessRuleRemoved,
    DecoySecretChosen,
    MetadataRecord,
    ProducerIdsAllocated,
    QuotaChanged,
    UserChanged,
)

ACCESS_RULES_MAX: Final = 10_000
"""In the metadata; every node has them in memory, and every snapshot."""


def change_access_rules(
    image: MetadataImage, command: AddAccessRules | RemoveAccessRules
) -> Decision:
    """Raises InvalidRequest."""
    if isinstance(command, AddAccessRules):
        return _add_rules(image, command)
    return _remove_rules(image, command)


def _add_rules(image: MetadataImage, command: AddAccessRules) -> Decision:
    """Raises InvalidRequest where there are too many."""
    new = [rule for rule in dict.fromkeys(command.rules) if rule not in image.rules]
    if len(image.rules) + len(new) > ACCESS_RULES_MAX:
        text = f"there are {len(image.rules)} access rules, and {ACCESS_RULES_MAX} may be: use prefixes"
        raise InvalidRequest(text)
    return Decision(tuple(AccessRuleAdded(rule=rule) for rule in new))


def _remove_rules(image: MetadataImage, command: RemoveAccessRules) -> Decision:
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


def alter_quota(image: MetadataImage, command: AlterQuota) -> Decision:
    """Raises InvalidRequest where there are too many."""
    known = image.quotas.get(command.client_id, NO_QUOTA)
    quota = known.changed(command.values)
    if quota == known:
        return Decision()
    if known == NO_QUOTA and len(image.quotas) >= QUOTAS_MAX:
        raise InvalidRequest(f"there are {QUOTAS_MAX} quotas, and no more may be")
    return Decision((QuotaChanged(client_id=command.client_id, quota=quota),))


def alter_user(image: MetadataImage, command: AlterUser) -> Decision:
    """Raises InvalidRequest where a name or key will not do, or there are too many users."""
    check_user_name(command.name)
    for mechanism, stored in command.changed.items():
        check_size(Scram(mechanism), stored.credential)
    known = image.users.get(command.name, {})
    missing = [it for it in command.removed if it not in known]
    if missing:
        raise InvalidRequest(f"user {command.name!r} has no credential for {', '.join(missing)}")
    if not known and len(image.users) >= USERS_MAX:
        raise InvalidRequest(f"there are {USERS_MAX} users, and no more may be")
    kept = {name: it for name, it in known.items() if name not in command.removed}
    credentials = {**kept, **command.changed}
    if credentials == known:
        return Decision()
    records: list[MetadataRecord] = []
    if not image.decoy_secret:
        records.append(DecoySecretChosen(secret=command.decoy_secret))
    records.append(UserChanged(name=command.name, credentials=credentials))
    return Decision(tuple(records))


PRODUCER_IDS_BLOCK: Final = 1_000
"""Kafka's: a record of the metadata log for each so many producers."""
PRODUCER_ID_MAX: Final = 2**63 - 1


def allocate_producer_ids(image: MetadataImage, command: AllocateProducerIds) -> Decision:
    """The next block, from ``first`` up to but without ``end``.

    An answer that is lost costs a block, of which there are enough.
    """
    first = image.producer_ids_end
    end = first + PRODUCER_IDS_BLOCK
    if end > PRODUCER_ID_MAX:
        raise InvalidRequest("all producer ids are given away")
    record = ProducerIdsAllocated(node_id=command.node_id, end=end)
    return Decision((record,), {"first": first, "end": end})
