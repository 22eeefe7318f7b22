"""Who may log in, and by which passwords. Pure."""

from streamlog.authn.scram import Scram
from streamlog.errors import InvalidRequest
from streamlog.metadata.commands import AlterUser
from streamlog.metadata.controller.decision import Decision
from streamlog.metadata.image.credential import USERS_MAX, check_size, check_user_name
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import DecoySecretChosen, MetadataRecord, UserChanged


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
