"""Guesses at HTTP's tokens are counted and slowed down, as those at passwords are."""

import asyncio
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.registry import Collector

from streamlog.app.security import NodeSecurity
from streamlog.cli.ledger.serve import http_listener
from streamlog.config import SaslSection, Settings
from streamlog.config.token_file import Tokens
from streamlog.errors import ConfigError
from streamlog.http.endpoints import HttpEndpoints, Readiness
from streamlog.ledger.metrics import LedgerMetrics
from streamlog.ledger.site import LedgerSite
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metrics import NodeMetrics

pytestmark = pytest.mark.filterwarnings("ignore:It is recommended to use web.RequestKey")

TOKEN = "a-token-of-some-length"
RIGHT = f"Bearer {TOKEN}"
WRONG = "Bearer guessed"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(TOKEN + "\n")
    return path


async def statuses(site: HttpEndpoints | LedgerSite, given: list[str | None]) -> list[int]:
    """Of one request each, all at once."""

    async def ask(authorization: str | None) -> int:
        headers = {} if authorization is None else {"Authorization": authorization}
        url = f"http://127.0.0.1:{site.port}/metrics"
        async with client.get(url, headers=headers) as answer:
            return answer.status

    async with aiohttp.ClientSession() as client:
        return await asyncio.gather(*map(ask, given))


async def no_gauges() -> list[Collector]:
    return []


async def test_a_node_examines_no_more_tokens_than_may_be_wrong(tokens: Path) -> None:
    settings = Settings(
        node={"data_dir": "data"},
        http={"token_file": tokens},
        sasl={"failures_per_address_max": 3, "failure_delay_ms": 0},
    )
    metrics = NodeMetrics()
    admission = NodeSecurity(settings, lambda: MetadataImage("c").rules, None, metrics)
    site = HttpEndpoints(
        "127.0.0.1",
        0,
        registry=metrics.registry,
        gauges=no_gauges,
        readiness=Readiness({}),
        loop_lag_s=lambda: 0.0,
        access=admission.http,
    )
    await site.start()
    try:
        assert await statuses(site, [RIGHT] * 10) == [200] * 10
        assert await statuses(site, [None] * 10) == [401] * 10  # no guesses
        assert await statuses(site, [RIGHT]) == [200]
        assert await statuses(site, [WRONG] * 10) == [401] * 10
        assert await statuses(site, [RIGHT]) == [401]
    finally:
        await site.stop()
    refused = metrics.registry.get_sample_value("streamlog_logins_refused_total", {"by": "HTTP"})
    assert refused == 21


async def test_and_neither_does_an_ordering_node(tokens: Path) -> None:
    listener = http_listener(("127.0.0.1", 0), tokens, (None, None, None), insecure=False)
    assert listener is not None
    site = LedgerSite(listener, metrics=LedgerMetrics(list), channels=list)
    await site.start()
    try:
        assert await statuses(site, [RIGHT]) == [200]
        guesses: list[str | None] = [WRONG] * SaslSection().failures_per_address_max
        assert await statuses(site, guesses) == [401] * len(guesses)
        assert await statuses(site, [RIGHT]) == [401]
    finally:
        await site.stop()


@pytest.mark.parametrize(
    "line",
    [
        "a token of several words",
        "# tokens of Prometheus, one a line",
        "short a-user-with-a-long-name",
    ],
)
def test_a_line_that_lets_no_client_in_is_refused_at_the_start(tokens: Path, line: str) -> None:
    own = Tokens(tokens, key="http.token_file")
    own.check()
    tokens.write_text(f"{TOKEN}\n{TOKEN} prometheus\n{line}\n")
    with pytest.raises(ConfigError, match=r"^http\.token_file: .* has a line that is no token"):
        own.check()
