"""The service: requests of JetStream's API in, one reply to each.

Requests that are answered side by side have a limit, and so have those that wait for their turn.

NATS lets a client name any reply subject, also one that it may not publish to; the answer is then
published by the node, which may. A message that DIRECT.GET answers with, its headers and payload
included, was chosen by its publisher. So an answer to such a subject would be a publish in
the node's name: no answer goes to what a stream stores, nor to what NATS or JetStream obeys.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import nats.errors

from streamlog.authn.session import Session
from streamlog.authz.audit import Audit
from streamlog.authz.visibility import Metadata
from streamlog.clock import wall_ms
from streamlog.condition import FAULT, Condition
from streamlog.config import NatsSection
from streamlog.control.operation import Caller
from streamlog.control.service import ControlService
from streamlog.errors import (
    AuthenticationFailed,
    BrokenInvariant,
    Overloaded,
    StreamlogError,
    StreamNotFound,
)
from streamlog.event_ids import event_ids
from streamlog.ingest.nats.error_counts import NatsErrorCounts
from streamlog.ingest.nats.errors import NatsError, NatsErrorKind, understood
from streamlog.ingest.nats.leaf import LeafLink
from streamlog.ingest.nats.options import NatsOptions
from streamlog.ingest.nats.server_link import DEFAULT_PAYLOAD_BYTES_MAX
from streamlog.ingest.pub_ack_format import PREFIX
from streamlog.jetstream.advisories import METRICS_PREFIX, Advisories, AdvisoryPublisher
from streamlog.jetstream.auth.identity import (
    NOT_ASKED,
    ReplayGuard,
    RequestIdentities,
    RequestIdentity,
)
from streamlog.jetstream.connection import (
    AdminConnection,
    NatsLatency,
    Request,
    RouterConnection,
    block_of,
)
from streamlog.jetstream.consumers.consumer_coordinator import HostedConsumer
from streamlog.jetstream.consumers.consumer_service import (
    ConsumerHost,
    ConsumerRequest,
    ConsumerService,
)
from streamlog.jetstream.consumers.consumer_statistics import ConsumerStatistics
from streamlog.jetstream.consumers.interest_reports import StreamInterest
from streamlog.jetstream.consumers.stream_source import StreamSource
from streamlog.jetstream.direct_get.direct_get import no_responders, status
from streamlog.jetstream.direct_get.direct_get_requests import DIRECT as DIRECT_OF_NODE
from streamlog.jetstream.direct_get.direct_get_requests import PREFIX as DIRECT
from streamlog.jetstream.direct_get.direct_get_requests import DirectRequests
from streamlog.jetstream.dispatcher import RequestDispatcher
from streamlog.jetstream.errors import OVERLOADED, ApiError, ApiRefused, api_error
from streamlog.jetstream.mirroring.mirror_service import MirrorService
from streamlog.jetstream.mirroring.mirror_statistics import FedStatistics
from streamlog.jetstream.mirroring.origin_batches import identity_of
from streamlog.jetstream.mirroring.origin_links import (
    ClusterLink,
    OriginLink,
    RouterLink,
    ServerOriginLink,
)
from streamlog.jetstream.replies import encoded
from streamlog.jetstream.republisher import Republisher, Unpublished
from streamlog.jetstream.request_queue import RequestQueue
from streamlog.jetstream.snapshot.snapshot_service import RESTORE, SNAPSHOT, SnapshotService
from streamlog.jetstream.verbs.consumers import NOT_SERVED
from streamlog.jetstream.verbs.stream_info import node_name
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.nodes.lease import Lease
from streamlog.metadata.stream.subjects import takes_inboxes
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId, TopicPartition
from streamlog.nats.domain import bucket_subject, domain_prefix
from streamlog.nats.router import Router, Subscription
from streamlog.nats.sockets import Sockets
from streamlog.partition.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

REPLY_NOT_SENT: Final = Condition(
    "SL-0501",
    "a management reply was not sent",
    "see that clients still wait, and NATS's max_payload",
    meaning="An answer of the management API did not reach NATS.",
)
REPLY_SUBJECT_REFUSED: Final = Condition(
    "SL-0503",
    "a request is not answered at such a subject",
    "the client wants its answer where a stream would store it, or NATS obey it; have it "
    "use an inbox that no stream stores",
    meaning="The reply subject of a request is one that a stream stores, or that nats-server "
    "obeys.",
)

DEFAULT_PREFIX: Final = "$JS.API."
QUEUE_GROUP: Final = "streamlog-admin"
MSG_NEXT: Final = "CONSUMER.MSG.NEXT."
TAKES_MESSAGES: Final = (MSG_NEXT, "DIRECT.GET", "$KV.", "$OBJ.")
"""A client that asks for messages takes each answer for one: where there is none, no responder is there. So it is for
a message to a bucket that there is not.
"""
CREATES_CONSUMER: Final = ("CONSUMER.CREATE.", "CONSUMER.DURABLE.CREATE.")
PULLED_MAX: Final = 1_000
"""Consumers that are known by the subject of their pull requests."""
DRAIN_TIMEOUT_S: Final = 2.0
TOO_LARGE: Final = ApiError(500, 10051, "the reply is larger than NATS lets through")

ROUND_TRIP_S: Final = 2.0
"""Between two measurements of how long NATS takes to answer."""
ROUND_TRIP_S_MAX: Final = 60
"""A connection that is silent for so long is given up before."""
SHOWN_CHARS: Final = 250
"""Of names, in a log line."""


class ManagementApi:
    """Answers for as long as ``run`` runs; waits for a NATS that is not there.

    Without the lease it leaves clients' requests to nodes that know better.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        nats: NatsSection,
        data_dir: Path,
        metadata: Metadata,
        partitions: ReplicaManager,
        metrics: NodeMetrics,
        control: ControlService,
        router: Router,
        sockets: Sockets,
        payload_bytes_max: int = DEFAULT_PAYLOAD_BYTES_MAX,
        lease: Lease | None = None,
        consumers: ConsumerHost | None = None,
        leaf: LeafLink | None = None,
        identity: RequestIdentities | None = None,
        audit: Audit | None = None,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        """``identity``: who asks, and what they may do; None: every client may do everything.
        ``payload_bytes_max``: of a message to a client of the node's port; ``consumers`` None: none are served, for
        what they deliver would reach no client.
        """
        self._node_id = node_id
        options = NatsOptions(nats) if nats.servers and not nats.is_leaf else None
        self._login: object = "" if options is None else options.login
        self._domain = nats.domain
        self._identity, self._audit = identity, audit or Audit()
        self._replays = ReplayGuard(metadata, 0 if identity is None else identity.window_ms)
        self._reply_subjects = ReplySubjects()
        interest = StreamInterest(
            control.leader, control.nodes, node_id=node_id, image=lambda: metadata.image
        )
        source = StreamSource(control.leader, control.leaders, control.nodes, interest)
        self._consumers: ConsumerService | None = None
        if consumers is not None:
            self._consumers = ConsumerService(
                node_id=node_id,
                domain=nats.domain,
                settings=consumers.settings,
                metadata=consumers.metadata,
                partitions=partitions,
                leaders=control.leaders,
                nodes=control.nodes,
                router=router,
                advise=self._advise,
                measure=self._tell_metric,
                may_deliver_to=self._reply_subjects.allows,
                lease=lease,
                source=source,
                interest=interest,
            )
        self._domain_prefix = domain_prefix(nats.domain)
        self._prefixes = [self._domain_prefix.decode()]
        if nats.default_api_prefix:
            self._prefixes.append(DEFAULT_PREFIX)

        def link() -> OriginLink:
            if options is None:
                return RouterLink(router, leaf)
            name = f"streamlog node {node_id} mirrors"
            return ServerOriginLink(options, router, sockets, metrics, name=name)

        async def ask(verb: str, stream: str, consumer: str) -> tuple[dict[str, Any], str]:
            """The reply to RESET or INFO, for a stream here that reads another one; and which stream that is."""
            known = metadata.image.streams.get(stream)
            try:
                if known is None:
                    raise StreamNotFound(f"stream {stream!r} not found")
                if self._consumers is None:
                    raise ApiRefused(NOT_SERVED)
                request = ConsumerRequest(verb, stream, known.stream_id, consumer)
                return await self._consumers.ask(request), identity_of(known.stream_id)
            except (ApiRefused, StreamlogError) as error:
                return {"error": api_error(error).json()}, ""

        def own_link() -> OriginLink:
            return ClusterLink(router, ask)

        self._mirrors = MirrorService(
            node_id=node_id,
            domain=nats.domain,
            own_apis=self._prefixes,
            partitions=partitions,
            nodes=control.nodes,
            source=source,
            image=lambda: metadata.image,
            link=link,
            own_link=own_link,
            lease=lease,
        )
        self._verbs = RequestDispatcher(
            control,
            domain=nats.domain,
            now_ms=now_ms,
            consumers=self._consumers,
            mirrors=self._mirrors,
        )
        self._snapshots = SnapshotService(
            node_id=node_id,
            data_dir=data_dir,
            metadata=metadata,
            control=control,
            source=source,
            consumers=self._consumers,
            advise=self._advise,
            may_deliver_to=self._reply_subjects.allows,
        )
        self._direct = DirectRequests(control.leader, control.leaders, self._verbs)
        control.nodes.register(DIRECT_OF_NODE, self._direct.answer_node)
        self._advisories = Advisories(
            node=node_name(node_id),
            domain=nats.domain,
            now_ms=now_ms,
            new_id=event_ids(),
        )
        self._telling = AdvisoryPublisher(
            self._advisories,
            self._publish,
            is_controller=lambda: metadata.controller_id == node_id,
        )
        self._republishing = Republisher(node_id, partitions, self._publish, metrics)
        self._client: AdminConnection | None = None
        """None: the node is no client of NATS, and requests come through the router alone."""
        if options is not None:
            self._client = AdminConnection(
                options,
                router,
                sockets,
                name=f"streamlog node {node_id} admin",
                connected=self._connected,
                disconnected=self._disconnected,
                failed=self._failed,
            )
        self._is_there = asyncio.Event()
        """NATS is."""
        self._local = RouterConnection(router, payload_bytes_max=payload_bytes_max)
        self._local_clients: list[Subscription] = []
        """As ``_clients``, at the router."""
        self._complaints = NatsErrorCounts(metrics, "admin")
        self.complaint: NatsError | None = None
        """Why it is not heard, as far as that is known."""
        self._clients: list[int] = []
        """What is subscribed to at NATS for clients; empty without the lease."""
        self._wanted = lease is None or lease.held
        self._changed = asyncio.Event()
        if lease is not None:
            lease.add_listener(self._lease_changed)
        self._stopping = False
        self._stopped = asyncio.Event()
        self.latency = NatsLatency()
        metrics.nats_round_trip.set_function(lambda: self.latency.seconds)
        self._pulled: dict[str, HostedConsumer] = {}
        """Consumers by the subject of their pull requests, of which clients send many: to find one takes longer than to
        serve it. Until the metadata change, and only where clients do not log in: then all may read the same.
        """
        self._requests = RequestQueue(lambda it: _telling(self._answer_client(it)))
        self._tasks: asyncio.TaskGroup | None = None
        self.is_ready = False
        """Requests are listened for, or will be as soon as NATS is back."""

    async def run(self) -> None:
        """Answer requests until ``stop``."""
        async with asyncio.TaskGroup() as group:
            self._tasks = group
            self._requests.begin(group)
            services = [
                self._telling.run(),
                self._republishing.run(),
                self._mirrors.run(),
                self._snapshots.run(),
            ]
            if self._consumers is not None:
                services.append(self._consumers.run())
            self._listen_locally_or_not()
            client = self._client
            if client is None:
                self._be_ready()
            else:
                services += [client.run(), self._serve(client), self._measure(client)]
            tasks = [group.create_task(service) for service in services]
            await self._stopped.wait()
            for task in tasks:
                task.cancel()
            self._requests.end()

    async def begin(self, image: MetadataImage) -> None:
        """With the image there is; changes of it are told, and nothing before."""
        nothing = MetadataImage(image.cluster_id)
        self._reply_subjects.apply(nothing, image)
        self._mirrors.apply(nothing, image)
        self._snapshots.apply(nothing, image)
        if self._consumers is not None:
            self._consumers.apply(nothing, image)

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        """At each change of the image, after the partitions have seen it."""
        self._pulled.clear()
        self._reply_subjects.apply(old, new)
        self._telling.apply(old, new)
        self._republishing.apply(old, new)
        self._mirrors.apply(old, new)
        self._snapshots.apply(old, new)
        if self._consumers is not None:
            self._consumers.apply(old, new)

    def consumer_statistics(self) -> ConsumerStatistics:
        """Of the consumers that this node coordinates."""
        return ConsumerStatistics() if self._consumers is None else self._consumers.statistics()

    def fed_statistics(self) -> list[FedStatistics]:
        """Of the mirrors and sources whose partitions this node leads."""
        return self._mirrors.statistics()

    def look(self, tp: TopicPartition) -> None:
        """A partition does as the image says, later than that was applied."""
        self._republishing.look(tp)
        self._mirrors.look(tp)
        if self._consumers is not None:
            self._consumers.look(tp)

    async def stop(self) -> None:
        """Take no more requests, answer those that are here, close. May be called again."""
        if self._stopping:
            return
        client, self._stopping, self._wanted = self._client, True, False
        self._listen_locally_or_not()
        if client is not None:
            await self._listen_or_not(client)
        await self._requests.wait_all_done()
        if self._consumers is not None:
            await self._consumers.stop()
        if client is not None:
            await client.round_trip(DRAIN_TIMEOUT_S)  # so that the answers are at the server
        self._stopped.set()
        if client is not None:
            client.close()

    def _be_ready(self) -> None:
        self.is_ready = True
        logger.info("management API ready", extra={"prefixes": self._prefixes})

    async def _measure(self, client: AdminConnection) -> None:
        """On this connection, where no messages of streams are in the way of the answer."""
        while True:
            await asyncio.sleep(ROUND_TRIP_S)
            if not (self.is_ready and client.is_connected):
                self.latency.lost()
                continue
            self.latency.asked()
            if await client.round_trip(ROUND_TRIP_S_MAX):
                self.latency.answered()
            else:
                self.latency.lost()

    async def _serve(self, client: AdminConnection) -> None:
        """Listen at NATS while the lease is held, once NATS is there."""
        await self._is_there.wait()
        await self._listen_or_not(client)
        while not await client.round_trip(DRAIN_TIMEOUT_S):
            await self._is_there.wait()
        self._be_ready()
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._listen_or_not(client)

    async def _listen_or_not(self, client: AdminConnection) -> None:
        """Nodes share the clients' requests, each of which is answered once."""
        if self._wanted and not self._clients:
            self._clients = [
                client.listen(f"{prefix}>", self._asked_at_nats, queue=QUEUE_GROUP)
                for prefix in self._prefixes
            ]
        elif self._clients and not self._wanted:
            ended, self._clients = self._clients, []
            for sid in ended:
                await client.stop_listening(sid, DRAIN_TIMEOUT_S)

    def _listen_locally_or_not(self) -> None:
        if self._wanted and not self._local_clients:
            self._local_clients = [
                self._local.listen(
                    f"{prefix}>",
                    self._asked_by_client,
                    queue=QUEUE_GROUP,
                    domain_prefix=self._domain_prefix,
                )
                for prefix in self._prefixes
            ]
        elif self._local_clients and not self._wanted:
            ended, self._local_clients = self._local_clients, []
            for subscription in ended:
                self._local.stop_listening(subscription)

    def _lease_changed(self, held: bool) -> None:
        if not self._stopping:
            self._wanted = held
            self._changed.set()
            if self._tasks is not None:
                self._listen_locally_or_not()

    # Requests, within the turn that brings them

    def _asked_at_nats(self, request: Request) -> None:
        """What a stream takes is not for the API: the ingest of its leader listens to the same subject."""
        bucket = bucket_subject(
            request.subject.encode(errors="surrogateescape"), self._domain_prefix
        )
        if bucket is None or not self._reply_subjects.is_stored(bucket.decode(errors="replace")):
            self._asked_by_client(request)

    def _asked_by_client(self, request: Request) -> None:
        if not self._reply_subjects.allows(request.reply):
            extra = {"subject": request.subject[:SHOWN_CHARS], "reply": request.reply[:SHOWN_CHARS]}
            logger.warning(REPLY_SUBJECT_REFUSED, extra=extra)
            return
        if request.connection is not self._client and self._pull_at_once(request):
            return
        try:
            self._requests.put(request)
        except Overloaded:
            assert self._tasks is not None, "run has begun"
            self._tasks.create_task(_telling(self._refuse_client(request)))

    def _pull_at_once(self, request: Request) -> bool:
        """Give a pull request to its consumer, if that is coordinated here. False: answer it otherwise."""
        hosted = self._pulled.get(request.subject)
        if hosted is None or not hosted.takes_pulls:
            self._pulled.pop(request.subject, None)
            hosted = self._find_pulled(request)
        if hosted is None or not self._requests.take_turn():
            return False
        hosted.pull(request.reply, request.data)
        return True

    def _find_pulled(self, request: Request) -> HostedConsumer | None:
        verb = self._verb(request.subject)
        if self._consumers is None or not verb.startswith(MSG_NEXT):
            return None
        asking = NOT_ASKED
        if self._identity is not None:
            try:
                asking = self._identity.of_client(request)
            except StreamlogError:
                return None
            if asking.counts_once:
                return None
        hosted = self._of(asking).consumers.hosted_here(verb.removeprefix(MSG_NEXT))
        if asking is NOT_ASKED and hosted is not None:
            if len(self._pulled) >= PULLED_MAX:
                self._pulled.clear()
            self._pulled[request.subject] = hosted
        return hosted

    async def _refuse_client(self, request: Request) -> None:
        verb = self._verb(request.subject)
        if verb.startswith((DIRECT, *TAKES_MESSAGES)):
            await request.connection.answer(request.reply, b"", status(OVERLOADED).block)
        else:
            reply = encoded(self._verbs.overloaded(verb))
            await request.connection.answer(request.reply, reply)

    async def _answer_client(self, request: Request) -> None:
        verb = self._verb(request.subject)
        asking = NOT_ASKED
        if self._identity is not None:
            try:
                asking = self._identity.of_client(request)
                if asking.counts_once:
                    await self._not_again(request, asking.session)
            except StreamlogError as error:
                await self._refuse_asker(request, verb, error)
                return
        verbs = self._of(asking)
        if verb.startswith(DIRECT):
            await self._direct.answer(request, verb, verbs)
        elif verb.startswith(MSG_NEXT):
            await self._deliver_next(request, verb, verbs)
        elif verb.startswith(TAKES_MESSAGES):
            await request.connection.answer(request.reply, b"", no_responders(request.subject))
        elif verb.startswith((SNAPSHOT, RESTORE)):
            text = await self._snapshots.answer(request, verb, verbs)
            self._audit_request(request, verb, text)
        elif request.connection is self._client and verb.startswith(CREATES_CONSUMER):
            await request.connection.answer(request.reply, encoded(await verbs.not_served(verb)))
        else:
            reply = await verbs.reply(verb, request.data, request.headers)
            text = _fitting(reply, request.connection.max_payload)
            await request.connection.answer(request.reply, text)
            self._audit_request(request, verb, text)

    def _audit_request(self, request: Request, verb: str, reply: bytes) -> None:
        audit = self._advisories.of_request(verb, request.subject, request.data, reply)
        if audit is not None:
            self._telling.tell(audit)

    def _of(self, asking: RequestIdentity) -> RequestDispatcher:
        if asking is NOT_ASKED:
            return self._verbs
        return self._verbs.of(Caller(asking.session, asking.access, by="NATS"))

    async def _deliver_next(self, request: Request, verb: str, verbs: RequestDispatcher) -> None:
        """MSG.NEXT: the consumer's coordinator answers, but for a consumer that is not there."""
        try:
            if request.connection is self._client:
                raise ApiRefused(NOT_SERVED)
            await verbs.consumers.next(verb.removeprefix(MSG_NEXT), request.reply, request.data)
        except (ApiRefused, StreamlogError):
            await request.connection.answer(request.reply, b"", no_responders(request.subject))

    def _advise(self, subject: str, kind: str, fields: dict[str, Any]) -> None:
        """Of what a consumer does."""
        if self._is_heard(f"{PREFIX}.{subject}"):
            self._telling.tell(self._advisories.of_consumer(subject, kind, fields))

    def _tell_metric(self, subject: str, kind: str, fields: dict[str, Any]) -> None:
        if self._is_heard(f"{METRICS_PREFIX}.{subject}"):
            self._telling.tell(self._advisories.of_measured_consumer(subject, kind, fields))

    def _is_heard(self, subject: str) -> bool:
        """Consumers come by the thousands in a second, mostly without a subscription to this. A client of NATS cannot
        know.
        """
        return self._client is not None or bool(self._local.interest(subject))

    async def _not_again(self, request: Request, session: Session) -> None:
        """Raises StreamlogError."""
        try:
            await self._replays.check(request)
        except AuthenticationFailed as error:
            self._audit.not_authenticated(session, str(error), by="NATS")
            raise

    async def _refuse_asker(self, request: Request, verb: str, error: StreamlogError) -> None:
        refused = self._verbs.failed(error, verb)
        if verb.startswith((DIRECT, *TAKES_MESSAGES)):
            await request.connection.answer(request.reply, b"", status(refused).block)
        else:
            reply = {**self._verbs.overloaded(verb), "error": refused.json()}
            await request.connection.answer(request.reply, encoded(reply))

    def _verb(self, subject: str) -> str:
        """What comes after the API's prefix."""
        for prefix in self._prefixes:
            if subject.startswith(prefix):
                return subject[len(prefix) :]
        raise BrokenInvariant(f"{subject!r} is not subscribed to")

    async def _publish(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None
    ) -> Unpublished | None:
        """To clients of the port, and where there is a NATS that takes it; else why not."""
        client = self._client
        if client is not None and not client.is_connected:
            return "disconnected"
        try:
            block = block_of(headers) if headers else b""
            if client is None:
                self._local.publish(subject, payload, block)
            else:
                with contextlib.suppress(nats.errors.MaxPayloadError):
                    self._local.publish(subject, payload, block, clients_only=True)
                await client.publish(subject, payload, block)
        except nats.errors.MaxPayloadError:
            return "too large"
        except nats.errors.BadSubjectError:
            return "subject"
        except nats.errors.BadHeaderError:
            return "headers"
        except (nats.errors.Error, OSError):
            return "disconnected"
        return None

    def _failed(self, error: Exception) -> None:
        """``ingest`` tells of a NATS that is not there; once is enough."""
        complaint = understood(error, self._login)
        if not self._complaints.hear(complaint):
            self.complaint = complaint
            extra = {"error": complaint.text}
            logger.debug("NATS connection of the management API", extra=extra)
        elif complaint.kind is NatsErrorKind.SUBSCRIBE:
            self.complaint = complaint

    def _connected(self) -> None:
        self.complaint = None  # what may not be subscribed to is yet to come
        self._is_there.set()

    def _disconnected(self, _: Exception | None) -> None:
        self.complaint = None
        self._is_there.clear()


def _fitting(reply: dict[str, Any], payload_bytes_max: int) -> bytes:
    data = encoded(reply)
    if len(data) > payload_bytes_max:
        data = encoded({"type": reply["type"], "error": TOO_LARGE.json()})
    return data


async def _telling(answering: Awaitable[None]) -> None:
    """An answer that cannot be sent is logged here, and concerns no other part."""
    try:
        await answering
    except nats.errors.Error as error:
        logger.warning(REPLY_NOT_SENT, extra={"error": str(error)})
    except Exception:
        logger.exception(FAULT.logged_as("a management request was not answered"))


RESERVED: Final = "$"
"""What begins so is no inbox: $JS.API, $SYS, $KV, ..."""
SERVER_INBOX: Final = re.compile(r"\$JSC\.R\.[A-Za-z0-9]{8}|\$JS\.[MS]\.[A-Za-z0-9]{8}")
"""But for those of nats-server itself, where its mirrors and sources get answers and messages. No client
subscribes to them, and their last token is random."""


class ReplySubjects:
    """Knows the subjects of all streams: ``apply`` at each change of the image."""

    def __init__(self) -> None:
        self._root = _SubscriptionBranch()

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        for change in new.changes(old):
            before, after = map(_patterns, change)
            for pattern in before - after:
                _remove(self._root, pattern.split("."))
            for pattern in after - before:
                _add(self._root, pattern.split("."))

    def allows(self, subject: str) -> bool:
        """Whether an answer may be published to ``subject``, which has no wildcards."""
        if subject.startswith(RESERVED) and not SERVER_INBOX.fullmatch(subject):
            return False
        return not self.is_stored(subject)

    def is_stored(self, subject: str) -> bool:
        """Whether a stream takes it."""
        branches = [self._root]
        for token in subject.split("."):
            further = []
            for it in branches:
                children = it.children
                if ">" in children:
                    return True
                if token in children:
                    further.append(children[token])
                if "*" in children and token != "*":
                    further.append(children["*"])
            if not further:  # as for most inboxes, at their first token
                return False
            branches = further
        return any(it.ends for it in branches)


class _SubscriptionBranch:
    """All patterns that begin with the same tokens."""

    __slots__ = ("children", "ends")

    def __init__(self) -> None:
        self.children: dict[str, _SubscriptionBranch] = {}
        self.ends = 0
        """Streams with a pattern that ends here."""


def _patterns(stream: StreamImage | None) -> frozenset[str]:
    """``subject.*`` stands for the subjects of all partitions but the first. A stream that answers
    a stream may store the whole of a NATS account, inboxes included: that must not end all answers.
    """
    if stream is None:
        return frozenset()
    config = stream.config
    patterns = {subject for subject in config.subjects if not takes_inboxes(subject)}
    if config.partitions > 1 and not config.is_spread:
        patterns.update([f"{subject}.*" for subject in patterns])
    return frozenset(patterns)


def _add(branch: _SubscriptionBranch, tokens: list[str]) -> None:
    for token in tokens:
        branch = branch.children.setdefault(token, _SubscriptionBranch())
    branch.ends += 1


def _remove(root: _SubscriptionBranch, tokens: list[str]) -> None:
    """And the branches that nothing is left of."""
    way = [root]
    for token in tokens:
        way.append(way[-1].children[token])
    way[-1].ends -= 1
    for parent, token, branch in zip(way[-2::-1], reversed(tokens), reversed(way), strict=False):
        if branch.ends or branch.children:
            break
        del parent.children[token]
