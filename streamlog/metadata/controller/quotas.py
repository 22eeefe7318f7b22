"""What clients may use. Pure."""

from streamlog.errors import InvalidRequest
from streamlog.metadata.commands import AlterQuota
from streamlog.metadata.controller.decision import Decision
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.quota import NO_QUOTA, QUOTAS_MAX
from streamlog.metadata.image.records import QuotaChanged


def alter_quota(image: MetadataImage, command: AlterQuota) -> Decision:
    """Raises InvalidRequest where there are too many."""
    known = image.quotas.get(command.client_id, NO_QUOTA)
    quota = known.changed(command.values)
    if quota == known:
        return Decision()
    if known == NO_QUOTA and len(image.quotas) >= QUOTAS_MAX:
        raise InvalidRequest(f"there are {QUOTAS_MAX} quotas, and no more may be")
    return Decision((QuotaChanged(client_id=command.client_id, quota=quota),))
