"""Where an answer may be published.

NATS lets a client name any reply subject, also one that it may not publish to; the answer is then
published by the node, which may. A message that DIRECT.GET answers with, its headers and payload
included, was chosen by whoever published it. So an answer to such a subject would be a publish in
the node's name: no answer goes to what a stream stores, nor to what NATS or JetStream obeys.
"""

from typing import Final

from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.stream.subjects import takes_inboxes

RESERVED: Final = "$"
"""What begins so is nobody's inbox: $JS.API, $SYS, $KV, ..."""


class ReplySubjects:
    """Knows the subjects of all streams: ``apply`` at each change of the image."""

    def __init__(self) -> None:
        self._root = _Branch()

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        for change in new.changes(old):
            before, after = map(_patterns, change)
            for pattern in before - after:
                _remove(self._root, pattern.split("."))
            for pattern in after - before:
                _add(self._root, pattern.split("."))

    def allows(self, subject: str) -> bool:
        """Whether an answer may be published to ``subject``, which has no wildcards."""
        return not subject.startswith(RESERVED) and not self._is_stored(subject)

    def _is_stored(self, subject: str) -> bool:
        branches = [self._root]
        for token in subject.split("."):
            if any(">" in it.children for it in branches):
                return True
            branches = [
                it.children[key] for it in branches for key in {token, "*"} & it.children.keys()
            ]
        return any(it.ends for it in branches)


class _Branch:
    """All patterns that begin with the same tokens."""

    __slots__ = ("children", "ends")

    def __init__(self) -> None:
        self.children: dict[str, _Branch] = {}
        self.ends = 0
        """Streams with a pattern that ends here."""


def _patterns(stream: StreamImage | None) -> frozenset[str]:
    """``subject.*`` stands for the subjects of all partitions but the first. A stream that answers
    nobody may store the whole of a NATS account, inboxes included: that must not end all answers.
    """
    if stream is None:
        return frozenset()
    config = stream.config
    patterns = {subject for subject in config.subjects if not takes_inboxes(subject)}
    if config.partitions > 1 and not config.is_spread:
        patterns.update([f"{subject}.*" for subject in patterns])
    return frozenset(patterns)


def _add(branch: _Branch, tokens: list[str]) -> None:
    for token in tokens:
        branch = branch.children.setdefault(token, _Branch())
    branch.ends += 1


def _remove(root: _Branch, tokens: list[str]) -> None:
    """And the branches that nothing is left of."""
    way = [root]
    for token in tokens:
        way.append(way[-1].children[token])
    way[-1].ends -= 1
    for parent, token, branch in zip(way[-2::-1], reversed(tokens), reversed(way), strict=False):
        if branch.ends or branch.children:
            break
        del parent.children[token]
