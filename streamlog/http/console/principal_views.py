"""What each client of the console may know of: one view for all who may know every stream and every transactional id,
and one for each principal who may not. Pure.

A view that leaves streams out has never heard of them: it counts, filters, sorts and pages over an image
without them. So neither a total nor a number of pages nor the time of an answer tells of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from streamlog.acl.authorizer import Authorizer
from streamlog.authz.permissions import Permissions
from streamlog.authz.visibility import Visibility
from streamlog.http.console.cluster_snapshot import ClusterSnapshot
from streamlog.http.console.view import SeesStream, View
from streamlog.metadata.image.metadata_image import MetadataImage

VIEWS_MAX: Final = 64
"""Of principals who may not know everything; the one that was used longest ago goes."""
UNUSED_BEATS: Final = 60
"""A view that no client has used for so many beats is let go."""


class PrincipalView:
    """``view`` is to be shown ``image`` and ``moment`` of what the node knows."""

    def __init__(self, view: View, permissions: Permissions | None = None) -> None:
        """``permissions``: None: of all who may know everything."""
        self.view = view
        self.rules: Authorizer | None = None if permissions is None else permissions.rules
        """By which it was made: its counts are right as long as these hold."""
        self.used = 0
        self._permissions = permissions
        self._visibility = None if permissions is None else Visibility(permissions, audited=False)
        self._seen: tuple[ClusterSnapshot, ClusterSnapshot] | None = None

    def image(self, image: MetadataImage) -> MetadataImage:
        return image if self._visibility is None else self._visibility.of(image)

    def moment(self, moment: ClusterSnapshot) -> ClusterSnapshot:
        if self._permissions is None:
            return moment
        if self._seen is None or self._seen[0] is not moment:
            sees = self._permissions.sees
            failures = moment.failures or {}
            shown = replace(
                moment,
                image=self.image(moment.image),
                failures={tp: why for tp, why in failures.items() if sees(tp.stream)},
                damaged=tuple(tp for tp in moment.damaged if sees(tp.stream)),
                transactions=[
                    it
                    for it in moment.transactions
                    if self._permissions.sees_transactional_id(it.transactional_id)
                ],
            )
            self._seen = moment, shown
        return self._seen[1]


class PrincipalViews:
    """``of`` the permissions of who asks: always the same view, as long as the rules are the same."""

    def __init__(self, make: Callable[[SeesStream | None], View]) -> None:
        self._make = make
        self.everything = PrincipalView(make(None))
        self._restricted: dict[tuple[str, str], PrincipalView] = {}

    def __iter__(self) -> Iterator[PrincipalView]:
        yield self.everything
        yield from tuple(self._restricted.values())

    def of(self, permissions: Permissions | None, beat: int) -> PrincipalView:
        """``permissions``: None: it may know all."""
        if permissions is None or (permissions.sees_all and permissions.sees_all_transactional_ids):
            return self.everything
        key = permissions.principal, permissions.host
        found = self._restricted.pop(key, None)
        if found is None or found.rules is not permissions.rules:
            found = PrincipalView(self._make(permissions.sees), permissions)
        while len(self._restricted) >= VIEWS_MAX:
            del self._restricted[next(iter(self._restricted))]
        self._restricted[key] = found
        found.used = beat
        return found

    def forget_unused(self, beat: int) -> None:
        for key, it in tuple(self._restricted.items()):
            if beat - it.used > UNUSED_BEATS:
                del self._restricted[key]
