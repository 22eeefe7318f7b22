"""New certificates are taken up by themselves, bad ones told of once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streamlog.config import Settings
from streamlog.metrics import NodeMetrics
from streamlog.tls.certificates import CertificateReload, Certificates
from tests.certificate_authority import CertificateAuthority, Issued
from tests.kafka_node import until

BAD = "certificates not reloaded: those loaded before stay in use"


class World:
    def __init__(self, directory: Path, check_ms: int) -> None:
        self.authority = CertificateAuthority(directory)
        self.issued: Issued = self.authority.issue("node", days=40)
        tls = self.issued.settings()
        settings = Settings(node={"data_dir": "data"}, tls=tls)
        self.metrics = NodeMetrics()
        self.certificates = Certificates(settings)
        self.renewal = CertificateReload(self.certificates, self.metrics, check_ms)

    def reloads(self, result: str) -> float:
        value = self.metrics.registry.get_sample_value(
            "streamlog_tls_reloads_total", {"result": result}
        )
        return value or 0

    @property
    def not_after(self) -> float:
        name = "streamlog_tls_certificate_not_after_timestamp_seconds"
        return self.metrics.registry.get_sample_value(name, {"listener": "kafka"}) or 0


@contextlib.asynccontextmanager
async def renewing(directory: Path, check_ms: int = 10) -> AsyncIterator[World]:
    world = World(directory, check_ms)
    task = asyncio.create_task(world.renewal.run())
    await until(lambda: world.not_after > 0)
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_new_one_is_taken_up_by_itself(tmp_path: Path) -> None:
    async with renewing(tmp_path) as world:
        before, context = world.not_after, world.certificates.kafka()
        world.authority.issue("node", days=90)
        await until(lambda: world.reloads("loaded") >= 1 and world.not_after > before)
        assert world.certificates.kafka() is not context


async def test_a_bad_one_is_told_of_once_and_the_old_one_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with renewing(tmp_path) as world:
        context, good = world.certificates.kafka(), world.issued.key.read_bytes()
        world.issued.key.write_text("no key")
        await until(lambda: world.reloads("failed") == 1)
        await asyncio.sleep(0.1)
        assert world.reloads("failed") == 1
        assert world.certificates.kafka() is context
        (line,) = [it for it in caplog.records if it.getMessage() == BAD]
        assert line.__dict__["key"] == "tls.cert"
        assert line.__dict__["remedy"]
        world.issued.key.write_bytes(good)
        await until(lambda: world.reloads("loaded") == 1)


async def test_a_key_may_come_after_its_certificate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with renewing(tmp_path, check_ms=200) as world:
        other = world.authority.issue("other")
        world.issued.cert.write_bytes(other.cert.read_bytes())
        await asyncio.sleep(0.25)
        world.issued.key.write_bytes(other.key.read_bytes())
        await until(lambda: world.reloads("loaded") >= 1)
    assert BAD not in caplog.messages


async def test_who_asks_is_told_at_once_and_nobody_looks_unasked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with renewing(tmp_path, check_ms=0) as world:
        world.issued.key.write_text("no key")
        await asyncio.sleep(0.05)
        assert BAD not in caplog.messages
        for count in (1, 2):
            world.renewal.ask()
            await until(lambda n=count: world.reloads("failed") == n)  # type: ignore[misc]


async def test_one_that_ends_soon_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with renewing(tmp_path, check_ms=0) as world:
        for days, said in ((5, "certificate expires soon: renew it"), (50, "certificate loaded")):
            caplog.clear()
            caplog.set_level("INFO")
            world.authority.issue("node", days=days)
            world.renewal.ask()
            await until(lambda text=said: text in caplog.messages)  # type: ignore[misc]
