import errno
import os
import socket

import pytest

from streamlog.errors import ConfigError
from streamlog.http.server import unbound
from streamlog.ledger.metrics import LedgerMetrics
from streamlog.ledger.site import HttpListener, LedgerSite


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (
            errno.EADDRINUSE,
            "http.port: 80 is in use on h; stop what uses it or choose another port",
        ),
        (errno.EACCES, "http.port: 80 is not allowed; choose a port above 1023"),
        (
            errno.EADDRNOTAVAIL,
            "http.host: cannot listen on h ([Errno 99] Cannot assign requested address);"
            " name an own address",
        ),
    ],
)
def test_the_setting_to_blame_is_named(number: int, text: str) -> None:
    error = OSError(number, os.strerror(number))
    assert str(unbound(error, "h", 80, keys="http.")) == text


async def test_an_ordering_node_names_its_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        site = LedgerSite(
            HttpListener("127.0.0.1", port), metrics=LedgerMetrics(list), channels=list
        )
        with pytest.raises(ConfigError, match=rf"^--http-port: {port} is in use on 127\.0\.0\.1; "):
            await site.start()


async def test_a_host_that_cannot_be_a_name_is_one_line() -> None:
    site = LedgerSite(HttpListener(".", 0), metrics=LedgerMetrics(list), channels=list)
    with pytest.raises(ConfigError, match=r"^--http-host: cannot listen on \. "):
        await site.start()
