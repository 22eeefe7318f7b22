"""Where streamlog answers otherwise than JetStream, and why: the one list.

A difference that no row explains is a mistake, and so is a row that explains none.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from compatibility.management.comparison import MISSING, Difference


class Known(NamedTuple):
    """A row."""

    what: str
    """As readers of docs/compatibility.md see it."""
    why: str
    explains: Callable[[Difference], bool]


def _path(pattern: str) -> Callable[[Difference], bool]:
    """Of a stream's description, whether alone or in a list."""
    wanted = re.compile(rf"(streams\.\d+\.)?({pattern})")
    return lambda it: wanted.fullmatch(it.path) is not None


def _refused(pattern: str) -> Callable[[Difference], bool]:
    """streamlog refuses, in such words, what JetStream takes."""
    wanted = re.compile(pattern)
    return lambda it: it.path == "error" and wanted.search(str(it.streamlog)) is not None


def _accepted(pattern: str) -> Callable[[Difference], bool]:
    """streamlog takes what JetStream refuses in such words."""
    wanted = re.compile(pattern)
    return lambda it: (
        it.path == "error"
        and it.streamlog == "accepted"
        and wanted.search(str(it.jetstream)) is not None
    )


def _verb(difference: Difference) -> str:
    verb = difference.request.verb
    return verb if isinstance(verb, str) else verb.decode(errors="replace")


def _words_of_json(it: Difference) -> bool:
    return it.path == "error.description" and all(
        str(told).startswith("invalid JSON: ") for told in (it.jetstream, it.streamlog)
    )


def _too_many_subjects(it: Difference) -> bool:
    return it.path == "error.description" and str(it.streamlog).startswith(
        "subjects: at most 1000 are allowed"
    )


def _unanswered(it: Difference) -> bool:
    is_answer = it.path.startswith(("messages", "type", "error"))
    return is_answer and it.jetstream in (0, MISSING) and bool(_UNKNOWN_VERB.match(_verb(it)))


def _name_of_ours(it: Difference) -> bool:
    """The request is about a stream whose name only JetStream takes."""
    return it.path == "error" and _ODD_NAME.search(_verb(it)) is not None


def _purged_beyond(it: Difference) -> bool:
    return b'"seq": 99' in it.request.body or it.scene == "purges by subject"


def _of_consumer(it: Difference) -> bool:
    return _verb(it).startswith("CONSUMER.CREATE")


def _before_the_first(it: Difference) -> bool:
    """Of a consumer of a stream that was purged beyond its end."""
    return _of_consumer(it) and it.path in ("delivered.stream_seq", "ack_floor.stream_seq")


_UNKNOWN_VERB: Final = re.compile(
    r"NONSENSE|stream\.|STREAM(\.CREATE|\.INFO|\.MSG\.GET)?$|STREAM\.NONSENSE|STREAM\.TEMPLATE"
    r"|INFO\.|STREAM\.NAMES\.|STREAM\.MSG\.scene|CONSUMER\.INFO\.scene$|SERVER\.|META\.|ACCOUNT\."
    r"|STREAM\.[A-Z.]+\.a\.b$"
)
_ODD_NAME: Final = re.compile(r"\.(x{250,}|__\w+|[^.]*[^\w.-][^.]*|[^.]*[^\x00-\x7f][^.]*)$")

KNOWN: Final[tuple[Known, ...]] = (
    Known(
        "`api.level` and the metadata `_nats.ver`, `_nats.level`, `_nats.req.level`",
        "streamlog says which of JetStream's features it has, and is no nats-server of any version",
        _path(r"api\.level|config\.metadata(\._nats\.(ver|level|req\.level))?"),
    ),
    Known(
        "`cluster` is told of every stream, also by a node that is alone",
        "it says who leads partition 0, and tools ask for it before they move a leader",
        _path(r"cluster(\..*)?"),
    ),
    Known(
        "`domain` is in the response of STREAM.CREATE as well, and not in acknowledgements",
        "a stream's description is the same for every request; an acknowledgement is as short as possible",
        lambda it: it.path == "domain" and MISSING in (it.jetstream, it.streamlog),
    ),
    Known(
        "a first sequence is at most 2^40",
        "a mirror of a stream that begins beyond would hold up its node",
        _refused(r"^500/10052 first_sequence: \d+ is not supported"),
    ),
    Known(
        "`mirror_direct` without a mirror is refused by STREAM.UPDATE as well",
        "STREAM.CREATE refuses it, and it would mean nothing",
        _refused("stream has no mirror but does have mirror direct"),
    ),
    Known(
        "an empty `subject_transform` or `republish` is not echoed",
        "it asks for nothing",
        _path(r"config\.(subject_transform|republish)\.(src|dest)"),
    ),
    Known(
        "durations are whole milliseconds, rounded up",
        "so fine are the times of records",
        lambda it: (
            _path(
                r"config\.(max_age|duplicate_window|subject_delete_marker_ttl"
                r"|consumer_limits\.inactive_threshold)"
            )(it)
            and -(-it.jetstream // 1_000_000) * 1_000_000 == it.streamlog
        ),
    ),
    Known(
        "a name has 1 to 249 of the characters A-Z a-z 0-9 _ -, and does not begin with __",
        "it is a Kafka topic's name and a folder's, too",
        lambda it: (
            _name_of_ours(it) or _refused("of the characters A-Z|are reserved|internal stream")(it)
        ),
    ),
    Known(
        "several streams may watch one subject",
        "each stores its copy and acknowledges",
        _accepted("^400/10065 "),
    ),
    Known(
        "inboxes cannot be taken, nor can a wildcard be a part of a token",
        "acknowledgements would be stored as messages; other tools take `a*` for a pattern",
        _refused("inboxes cannot be taken|would take inboxes|^500/10052 invalid subject$"),
    ),
    Known(
        "a placement that no node satisfies is refused with 400/10005, by one node, too",
        "JetStream alone takes any, and refuses it in a cluster",
        _refused("^400/10005 no suitable peers for placement"),
    ),
    Known(
        "`did_create` is left out where the same stream was there",
        "so JetStream does in a cluster, where it can tell",
        _path("did_create"),
    ),
    Known(
        "an empty page of names is a list, not null",
        "some clients read nothing else",
        lambda it: it.path == "streams" and it.jetstream is None and it.streamlog == [],
    ),
    Known(
        "an unknown verb is answered with 400/10003",
        "JetStream does not answer it, nor requests that only its system account may send",
        _unanswered,
    ),
    Known(
        "a request that needs a higher API level is refused with 412/10185",
        "see `api.level`",
        lambda it: (
            it.request.headers.get("Nats-Required-Api-Level") == "5" and it.path.startswith("error")
        ),
    ),
    Known(
        "headers that are none are as if there were none",
        "JetStream answers 503/10039: it finds no room there for who has asked",
        lambda it: it.scene == "headers" and _accepted("^503/10039 ")(it),
    ),
    Known(
        "a consumer without a name is given another one than JetStream's",
        "both choose it by chance",
        lambda it: _of_consumer(it) and it.path == "name",
    ),
    Known(
        "a purge up to a sequence beyond the end empties the stream, and no more",
        "JetStream goes on behind that sequence, which leaves a gap that nothing was lost in",
        lambda it: (
            _before_the_first(it) or (_purged_beyond(it) and _path(r"state\..*|purged|seq")(it))
        ),
    ),
    Known(
        "`last_ts` is no time where all messages were purged",
        "the log alone says what there is, and it is empty then",
        lambda it: _path(r"state\.last_ts")(it) and it.streamlog == "0001-01-01T00:00:00Z",
    ),
    Known(
        "`num_subjects` is told by STREAM.INFO alone",
        "to list or change streams must not cost the memory of an index of each",
        lambda it: not _verb(it).startswith("STREAM.INFO.") and _path(r"state\.num_subjects")(it),
    ),
    Known(
        "a sealed stream's `discard` is `old`",
        "nothing comes in, so nothing is discarded",
        _path(r"config\.discard"),
    ),
    Known(
        "a stream has at most 1,000 subjects, `multi_last` 4,096, and a template of"
        " `subject_transform` or `republish`, or the `subject` of a list, 1,024 characters",
        "JetStream bounds none of these; a request of any client must not hold up the others",
        lambda it: (
            _refused(r"^500/10052 (subject_transform|republish): .*at most 1024 characters$")(it)
            or (it.scene == "large fields" and _refused("^400/10003 |^413 Too Many Results")(it))
            or _too_many_subjects(it)
        ),
    ),
    Known(
        "the words after `invalid JSON:`",
        "JetStream's name types of its implementation; ours name the field and what it holds",
        _words_of_json,
    ),
)


def reason(difference: Difference) -> Known | None:
    """The first row that explains it."""
    return next((row for row in KNOWN if row.explains(difference)), None)
