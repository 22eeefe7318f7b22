"""STREAM.*: the verbs about streams. A request's fields in; a reply's fields, or errors, out."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from streamlog.control.control import Control
from streamlog.control.leaders.leader_router import LeaderRouter, States
from streamlog.control.messages.subject_counts import page_of
from streamlog.errors import (
    DeletionDenied,
)
from streamlog.jetstream.consumers.consumer_service import ConsumerService
from streamlog.jetstream.errors import (
    BAD_REQUEST,
    NAME_MISMATCH,
    NO_PEERS,
    PATH_IN_NAME,
    REPLICAS,
    ApiRefused,
    invalid_config,
    purge_failed,
    stream_update_failed,
)
from streamlog.jetstream.mirroring.mirror_service import MirrorService
from streamlog.jetstream.replies import JsonText
from streamlog.jetstream.requests.fields import Fields, number, text
from streamlog.jetstream.verbs.consumers import NOT_SERVED
from streamlog.jetstream.verbs.stream_config import (
    ConfigTexts,
    check_creation,
    config_from_json,
    normalised,
)
from streamlog.jetstream.verbs.stream_info import SingleReplicaTexts, rfc3339, stream_info
from streamlog.jetstream.verbs.stream_origins import MIRROR_CHANGED
from streamlog.metadata.controller.streams import LASTING
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metadata.stream.stream_config import StreamConfig, is_jetstream_name
from streamlog.metadata.stream.subjects import SUBJECT_BYTES_MAX
from streamlog.model import TopicPartition

NAMES_MAX: Final = 1024
LIST_MAX: Final = 256
LOOKED_AT_ONCE: Final = 2_000
"""Streams and their subjects, before others have their turn of the event loop."""
TURN_S: Final = 0.001
"""Of streams that are described, before others have their turn."""
COUNTED_PARTITIONS_MAX: Final = 64
"""Of a stream with more of them the number of subjects is not told."""


class Streams:
    """Every method is one verb."""

    def __init__(
        self,
        control: Control,
        leaders: LeaderRouter,
        *,
        domain: str,
        now_ms: Callable[[], int],
        consumers: ConsumerService | None = None,
        mirrors: MirrorService | None = None,
        for_all: "Streams | None" = None,
    ) -> None:
        """``control``: for the client. ``for_all``: the one that this is as the client sees it."""
        self._consumers = consumers
        self._mirrors = mirrors
        self.control = control
        self._configs: ConfigTexts = ConfigTexts() if for_all is None else for_all._configs
        self._texts: SingleReplicaTexts = (
            SingleReplicaTexts(domain=domain) if for_all is None else for_all._texts
        )
        self._leaders = leaders
        self._domain = domain
        self._now_ms = now_ms

    async def create(self, name: str, fields: Fields) -> dict[str, Any]:
        if fields.get("name", "") != name:
            raise ApiRefused(NAME_MISMATCH)
        if "/" in name or "\\" in name:
            raise ApiRefused(PATH_IN_NAME)
        check_creation(fields)
        config = self._honoured(normalised(fields))
        stream, created = await self.control.streams.create(config)
        info = await self._info(stream)
        return {**info, "did_create": True} if created else info

    def checked(self, fields: Fields) -> StreamConfig:
        """Of a stream that is restored. Raises ApiRefused, StreamlogError."""
        check_creation(fields)
        return self._honoured(normalised(fields))

    async def update(self, name: str, fields: Fields) -> dict[str, Any]:
        asked = normalised(fields)
        if asked["name"] != name:
            raise ApiRefused(NAME_MISMATCH)
        stream = await self.control.streams.find(name)
        asked["first_seq"] = stream.config.first_sequence  # it has begun, whatever is asked for now
        for lasting in LASTING:
            if getattr(stream.config, lasting.name) and not asked[lasting.jetstream]:
                raise ApiRefused(invalid_config(lasting.told))
        config = self._honoured(asked)
        if config.mirror and config.mirror != stream.config.mirror:
            raise ApiRefused(MIRROR_CHANGED)
        await self._check_consumers(stream, config)
        return await self._info(await self.control.streams.replace(name, config))

    async def _check_consumers(self, stream: StreamImage, config: StreamConfig) -> None:
        """Those that are there keep new limits, too. Raises ApiRefused."""
        if self._consumers is None or config.consumer_limits == stream.config.consumer_limits:
            return
        beyond = await self._consumers.beyond(stream, config.limits_of_consumers)
        if beyond:
            told = f"change to limits violates consumers: {', '.join(beyond)}"
            raise ApiRefused(stream_update_failed(told))

    async def info(self, name: str, fields: Fields) -> dict[str, Any]:
        pattern, offset = text(fields, "subjects_filter"), max(fields.get("offset", 0), 0)
        details = bool(fields.get("deleted_details"))
        await self.control.streams.catch_up()
        stream = self.control.streams.described(name)
        info: dict[str, Any] = {"total": 0, "offset": 0, "limit": 0}
        info |= await self._info(stream, details=details)
        counts = await self._subject_counts(stream)
        if None not in counts and any(counts):
            info["state"]["num_subjects"] = sum(filter(None, counts))
        if self._consumers is not None:
            info["state"]["consumer_count"] = await self._consumers.count(stream)
        if self._mirrors is not None:
            info |= self._mirrors.alternates(name)
        if pattern:
            page = await page_of(await self._subjects(stream, pattern), offset)
            if page.subjects:
                info["state"]["subjects"] = page.subjects
            info |= page.json()
        return info

    async def _subject_counts(self, stream: StreamImage) -> list[int | None]:
        """Of each partition, unless they are many."""
        count = len(stream.partitions)
        if count > COUNTED_PARTITIONS_MAX:
            return []
        tps = [TopicPartition(stream.name, place) for place in range(count)]
        if count == 1:
            return [await self._leaders.subject_count(tps[0])]
        return await asyncio.gather(*(self._leaders.subject_count(tp) for tp in tps))

    async def _subjects(self, stream: StreamImage, pattern: str) -> dict[str, int]:
        """A subject may have messages in several partitions."""
        totals: dict[str, int] = {}
        for place in range(len(stream.partitions)):
            tp = TopicPartition(stream.name, place)
            for subject, count in (await self._leaders.subjects(tp, pattern)).items():
                totals[subject] = totals.get(subject, 0) + count
        return totals

    async def delete(self, name: str, _: Fields) -> dict[str, Any]:
        await self.control.streams.delete(name)
        return {"success": True}

    async def names(self, _: str, fields: Fields) -> dict[str, Any]:
        await self.control.streams.catch_up()
        names, page = await self._page(fields, NAMES_MAX)
        return {**page, "streams": names}

    async def list_streams(self, _: str, fields: Fields) -> dict[str, Any]:
        await self.control.streams.catch_up()
        names, page = await self._page(fields, LIST_MAX)
        known = self.control.streams.image.streams
        streams = [found for name in names if (found := known.get(name)) is not None]
        return {**page, "streams": await self._infos(streams)}

    async def purge(self, name: str, fields: Fields) -> dict[str, Any]:
        sequence, keep = number(fields, "seq"), number(fields, "keep")
        if sequence and keep:
            raise ApiRefused(BAD_REQUEST)
        count = len((await self.control.streams.find(name)).partitions)
        if sequence and count > 1:
            raise ApiRefused(purge_failed("seq: each partition has sequences of its own"))
        try:
            purged = await self.control.streams.purge(
                name,
                before_offset=sequence - 1 if sequence else None,
                keep=keep,
                subject=text(fields, "filter"),
            )
        except DeletionDenied:
            raise ApiRefused(purge_failed("stream purge not permitted")) from None
        return {"success": True, "purged": purged.purged}

    def _honoured(self, asked: Fields) -> StreamConfig:
        """Of a configuration that keeps JetStream's rules. Raises ApiRefused, InvalidRequest."""
        image = self.control.streams.image
        if asked["num_replicas"] > 1 and len(image.nodes) == 1:
            raise ApiRefused(REPLICAS)
        placement = asked.get("placement") or {}
        if placement.get("tags") or placement.get("cluster", "") not in ("", image.cluster_id):
            raise ApiRefused(NO_PEERS)  # no node has tags
        if asked["retention"] not in ("limits", "") and self._consumers is None:
            told = (
                f"retention: {asked['retention']!r} is not supported here: {NOT_SERVED.description}"
            )
            raise ApiRefused(invalid_config(told))
        return config_from_json(asked)

    async def _info(self, stream: StreamImage, *, details: bool = False) -> dict[str, Any]:
        """One that is asked for again and again; a list of all is not kept."""
        states = await self._leaders.states([stream], details=details)
        config, now = self._configs.of(stream.config), rfc3339(self._now_ms())
        if self._texts.keep(stream, self.control.streams.image, config) is None:
            self._configs.text_of(stream.config)  # the next list asks for it
        return {**self._told(stream, states, config, now), **await self._origins(stream)}

    async def _origins(self, stream: StreamImage) -> dict[str, Any]:
        """Of a stream that mirrors or sources others: how far it has come."""
        return {} if self._mirrors is None else await self._mirrors.describe(stream)

    async def _infos(self, streams: Sequence[StreamImage]) -> list[dict[str, Any] | JsonText]:
        """A leader that does not answer must not hide the streams."""
        states, counts = await asyncio.gather(
            self._leaders.states(streams), self._consumer_counts(streams)
        )
        now = rfc3339(self._now_ms())
        fed = [stream for stream in streams if stream.config.is_fed]
        described = await asyncio.gather(*map(self._origins, fed)) if fed else ()
        origins = {stream.name: it for stream, it in zip(fed, described, strict=True)}
        told, ends_s = list[dict[str, Any] | JsonText](), time.monotonic() + TURN_S
        for stream in streams:
            count = counts.get(stream.name, 0)
            if stream.config.is_fed:
                config = self._configs.text_of(stream.config)
                info = self._told(stream, states, config, now, count)
                told.append({**info, **origins[stream.name]})
            else:
                told.append(self._listed(stream, states, now, count))
            if time.monotonic() >= ends_s:
                await asyncio.sleep(0)
                ends_s = time.monotonic() + TURN_S
        return told

    async def _consumer_counts(self, streams: Sequence[StreamImage]) -> dict[str, int]:
        return {} if self._consumers is None else await self._consumers.counts(streams)

    def _listed(
        self, stream: StreamImage, states: States, now: str, consumer_count: int
    ) -> dict[str, Any] | JsonText:
        state, image = states.get(TopicPartition(stream.name, 0)), self.control.streams.image
        text = self._texts.of(stream, state, image, now, consumer_count)
        if text is not None:
            return text
        return self._told(stream, states, self._configs.text_of(stream.config), now, consumer_count)

    def _told(
        self,
        stream: StreamImage,
        states: States,
        config: dict[str, Any] | JsonText,
        now: str,
        consumer_count: int = 0,
    ) -> dict[str, Any]:
        name = stream.name
        return stream_info(
            stream,
            [states.get(TopicPartition(name, place)) for place in range(len(stream.partitions))],
            config=config,
            image=self.control.streams.image,
            domain=self._domain,
            now=now,
            consumer_count=consumer_count,
        )

    async def _page(self, fields: Fields, limit: int) -> tuple[Sequence[str], dict[str, int]]:
        """Sorted names from ``offset`` on, at most ``limit``; of those that watch ``subject``."""
        pattern = text(fields, "subject")
        if len(pattern) > SUBJECT_BYTES_MAX:
            raise ApiRefused(BAD_REQUEST)  # it is compared with each stream's
        names = list(filter(is_jetstream_name, await self.control.streams.names(pattern)))
        offset = min(max(fields.get("offset", 0), 0), len(names))
        page = {"total": len(names), "offset": offset, "limit": limit}
        return names[offset : offset + limit], page
