"""What to do about each event that is worth a warning, in one place, so that none is forgotten.

A line of the log has it as ``remedy``, unless the code that logs it gives a better one. ``NOTHING``: the node
does what is to be done, and the line says so. A test finds events without an entry.
"""

from types import MappingProxyType
from typing import Final

NOTHING: Final = ""

_DISK: Final = "look at the disk (dmesg, smartctl); repair or replace it, then restart the node"
_REPLICA: Final = (
    "another replica in sync repairs it by itself; without one restore from a backup, and look at "
    "the disk"
)
_BUG: Final = "this is a fault of streamlog: report it with this line and its traceback"
_ROOM: Final = "shorten retention, delete streams, or enlarge the disk"
_PEERS: Final = "see whether the nodes run and reach each other: streamlog doctor"
_FIRST_THEN_RESTART: Final = "correct what the error names; if it stays, restart the node"
_SLOW: Final = (
    "see whether the disk and the followers keep up: streamlog_fsync_duration_seconds, ISR, lag"
)

REMEDIES: Final = MappingProxyType(
    {
        # app
        "event loop was blocked": "see whether the machine lacks processor time, or swaps",
        "node failed": _BUG,
        "stop failed": "the next start recovers what is missing; look at the error",
        "stop took too long": "the next start recovers; raise node.stop_timeout_ms if it is short",
        "stopping at once": NOTHING,
        "a part of the status page failed": _BUG,
        "operation over HTTP failed": _BUG,
        "the status page was not told of a change": _BUG,
        # metadata
        "others could read the data folder": "nothing: it is for the node's account alone from now "
        "on; change passwords if others may have read it",
        "others can read the data folder": "chown it to the account of the node, or chmod -R "
        "go= it",
        "others can read the folder of the ledger": "chown it to the account of the node, or chmod "
        "-R go= it",
        "node is gone": "start it, or see its log; others lead in its place",
        "session over": "see whether that node runs and reaches this one: streamlog doctor",
        "waiting to register": "start a majority of cluster.voters (a new cluster: all); " + _PEERS,
        "a leader may not be ready": NOTHING,
        "another node is to be the controller": "see what this node's /readyz says",
        "leaving without a word": NOTHING,
        "cluster.voters is not what the cluster says, which holds": (
            "bring cluster.voters in line with `streamlog cluster quorum` on every node"
        ),
        "internal stream not made, or not kept by more": _PEERS,
        "metadata log failed": _DISK,
        "metadata not read": _FIRST_THEN_RESTART,
        "metadata not written": _FIRST_THEN_RESTART,
        "metadata checkpoint failed": _FIRST_THEN_RESTART,
        "metadata checkpoint damaged": "nothing: it is read from the log; look at the disk",
        "metadata snapshot failed": _FIRST_THEN_RESTART,
        "metadata snapshot damaged": "an older one, or the leader's, is used; look at the disk",
        "snapshot not fetched": _PEERS,
        "metadata of a node went back": (
            "see whether the node was started on an older copy of its data folder; a voter: see "
            "the runbook replace-a-node"
        ),
        "vote damaged": "this node does not vote until it has caught up; look at the disk",
        "run not noted": _FIRST_THEN_RESTART,
        "data folder is an older copy": (
            "nothing where other replicas are in sync: it fetches from them; a voter: see the "
            "runbook replace-a-node"
        ),
        "last in-sync replica may lack records": (
            "if a newer copy of the data folder is left, stop the node and put that back; else "
            "publish again what publishers still have"
        ),
        "last in-sync replica is lost": (
            "put the data folder back if it is left; else restore from a backup, or have another "
            "replica lead with `streamlog cluster elect-leader --unclean`"
        ),
        # partitions
        "partition offline": _DISK,
        "partition folder is gone": (
            "mount the disk that had it, and restart; else it is fetched from the other replicas"
        ),
        "partition folder cannot be moved away": _FIRST_THEN_RESTART,
        "partition not followed": _FIRST_THEN_RESTART,
        "leader unreachable": _PEERS,
        "committed records lost": _REPLICA,
        "committed records cut off": (
            "an unclean election, or a disk that lied, has lost them: see docs/durability.md"
        ),
        "log cut where the leader's goes on otherwise": NOTHING,
        "damaged records cut off, to be fetched again": "look at the disk if it happens again",
        "folder of an unknown stream moved away": (
            "it lies in orphans/: remove it when it is not needed"
        ),
        "folder's mark damaged": _DISK,
        "removed files remain": _FIRST_THEN_RESTART,
        "log starts are not written": "purges wait, nothing is deleted meanwhile; " + _DISK,
        "purged files remain": NOTHING,
        "checkpoint damaged": "nothing: logs are read in its place; look at the disk",
        "checkpoints not written": _FIRST_THEN_RESTART,
        "limit of a recovery point stays": NOTHING,
        "log not closed in order": "the next start recovers it; look at the error",
        "retention failed": _FIRST_THEN_RESTART,
        "scrub failed": _FIRST_THEN_RESTART,
        "compaction failed": _FIRST_THEN_RESTART,
        "segment not ended": NOTHING,
        "not auto-paused": NOTHING,
        "disk full": _ROOM + "; the node goes on by itself",
        "room on the disk not looked for": _FIRST_THEN_RESTART,
        "file of erasures is not written": _FIRST_THEN_RESTART,
        "producers from here on are not known": "idempotent producers begin again: restart them",
        "messages are not trimmed": _FIRST_THEN_RESTART,
        "messages could not be trimmed": _BUG,
        "subjects are not known": "raise log.subject_index_bytes, or correct what the error names",
        "subjects could not be read": _BUG,
        # logs
        "manifest damaged": "nothing: it is made again from the folder; look at the disk",
        "active segment missing": "it is fetched again from the other replicas; look at the disk",
        "folder cannot be read": _DISK,
        "log failed": _DISK,
        "log cut": "nothing where the machine went down; otherwise look at the disk",
        "end of a log lost": _REPLICA,
        "lost end not noted": _ROOM + "; a node that is killed now forgets what its log has lost",
        "lost end stays noted": "nothing: the next start leaves the in-sync replicas once more",
        "synced records are missing": "the disk lost what it had said to keep; " + _REPLICA,
        "damaged batch, not served": _REPLICA,
        "damaged batch not served": _REPLICA,
        "damaged segment kept aside": "remove it when it is not needed; look at the disk",
        "damaged segment not kept aside": NOTHING,
        "segment cannot be checked": _DISK,
        "index entry is wrong": "nothing: it was found in the log; look at the disk",
        "data key is still under an old key": "keep the old key configured; look at the disk",
        "index rebuilt": "nothing; look at the disk if it happens again",
        "file rebuilt": "nothing; look at the disk if it happens again",
        "sync of the file system failed": "files are synced one by one; look at the disk",
        "erasures are read from the log": NOTHING,
        "log closed without a sync": "the next start recovers it; look at the disk",
        "log closed without indexes": "the next start builds them again; look at the disk",
        "snapshot of message ids is not used": "nothing: the log is read for them",
        "snapshots of message ids are left out": "the next start reads them from the logs",
        "snapshot of message ids is not written": "the next start reads them from the log",
        # NATS
        "NATS connection lost": "start nats-server; the node connects again by itself",
        "NATS complains": "see what nats-server's log says of it",
        "waiting for NATS": "see whether nats-server runs there, and whether nats.servers is right",
        "NATS has cut this node off": "give this node more processor time, or raise max_pending",
        "NATS does not permit what streamlog needs": "grant it: docs/nats.md has all permissions",
        "connecting to NATS failed": _BUG,
        "reconnecting to NATS failed": _BUG,
        "reading from NATS failed": _BUG,
        "no room, refusing": _SLOW,
        "not listening: the controller is not heard": _PEERS,
        "listening again": NOTHING,
        "stopping with appends uncommitted": "publishers hear of no ack, and publish again",
        "partition cannot be listened for": _FIRST_THEN_RESTART,
        "messages could not be taken": _BUG,
        "append failed unexpectedly": _BUG,
        "an envelope could not be opened; it is stored as it came": _BUG,
        "a message's headers could not be judged": _BUG,
        "duplicate window could not be rebuilt": _BUG,
        "the last messages are not known": "another replica repairs the log; " + _DISK,
        "messages go to other partitions now: for the duplicate window a retry of a message"
        " that was stored before may be stored again": (
            "nothing, if publishers may repeat themselves; docs/publishing.md says how to avoid it"
        ),
        "message ids could not be read ahead": _BUG,
        "message ids from here on are not known": "publishers may repeat themselves unseen; "
        + _REPLICA,
        # the management API
        "a management reply was not sent": "see that clients still wait, and NATS's max_payload",
        "a management request was not answered": _BUG,
        "management request failed": _BUG,
        "another node's request failed": _BUG,
        "a request's reply subject is not UTF-8": "correct the client that asks so",
        "a request is not answered at such a subject": "the client wants its answer where a stream"
        " would store it, or NATS obey it; have it use an inbox that no stream stores",
        "messages are not published again": _FIRST_THEN_RESTART,
        "messages not published again": (
            "`too large`: raise max_payload of nats-server; `subject`: shorten what republish makes"
        ),
        "advisories were dropped": "NATS was away, or slow: see its log",
        # groups, activity
        "groups cannot be read from the log": _REPLICA,
        "groups cannot be coordinated": _FIRST_THEN_RESTART,
        "no stream for consumer groups": _PEERS,
        "activity is not told": _PEERS,
        "activity cannot be told here": _FIRST_THEN_RESTART,
        "metadata was let go before its activity was told": (
            "nothing; __activity has a gap event in its place"
        ),
        "activity goes on with another metadata log": (
            "nothing, if the cluster was restored or its quorum forced; __activity has a gap event"
        ),
        "last activity does not decode": "another client has written to __activity: check the ACLs on it",
        # who gets in
        "insecure: any client that reaches this address may do anything": (
            "turn on [sasl] or client certificates; docs/security.md"
        ),
        "permissive: any client may do anything": (
            "remove security.permissive when all have moved; docs/runbooks/turn-on-security.md"
        ),
        "let in although security is to be demanded": (
            "give that client TLS and a login before security.permissive is removed"
        ),
        "certificates not reloaded: those loaded before stay in use": "repair the files, or renew them",
        "certificate has expired: renew it": "put a new one in its place: it is read by itself",
        "certificate expires soon: renew it": "put a new one in its place: it is read by itself",
        "login failed": "see who that is; several from one address are slowed down by themselves",
        "file not read again": "repair the file; what was read before stays in use",
        # the ledger
        "channel halted": "correct what the problem names, and restart; docs/ledger.md",
        "channel is not let in": (
            "see --user, --password-file and its rights (docs/ledger.md); it tries again"
        ),
        "channel waits": _PEERS,
        "channel left out": "correct the channel's file, or remove its folder, and restart",
        "stream cannot be read just now": _PEERS,
        "NATS trouble": "see whether nats-server runs there, and what its log says",
        "onboarded blocks discarded": NOTHING,
        "peer refused": "see who runs that peer: what it sent is not of this chain",
        "chain has diverged": (
            "compare `streamlog ledger verify` of several nodes; remove the folder that is wrong"
        ),
        "ledger file cannot be checked": _DISK,
        "ledger cut back to the last good block": "nothing: it is fetched again; look at the disk",
        "ledger begun again": "nothing: it is fetched again; look at the disk",
        "checkpoint damaged, all blocks are read": "nothing; look at the disk if it happens again",
        "blocks are sought, for want of their positions": (
            "make room if its disk is full, and restart: until then finding a block takes longer"
        ),
        "time to cut not posted": NOTHING,
        # the socket API
        "connection closed": "see what that client sends: it, its version or settings, is at fault",
        "request failed": _BUG,
        "cannot accept": "raise the limit of open files: streamlog doctor says how far",
    }
)
