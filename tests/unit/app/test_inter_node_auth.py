"""Settings that leave nobody a way to prove who they are are refused at the start."""

from typing import Any

import pytest

from streamlog.app.security import NodeSecurity, build_authenticator
from streamlog.config import Settings
from streamlog.errors import ConfigError
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metrics import NodeMetrics
from streamlog.tls.certificates import Certificates

SCRAM = {"mechanisms": ["SCRAM-SHA-512"]}
VOTERS = {"id": "c", "voters": ["1@a:1", "2@b:1", "3@c:1"]}


def settings(**sections: dict[str, Any]) -> Settings:
    return Settings(node={"data_dir": "data"}, **sections)  # type: ignore[arg-type]


def built(given: Settings) -> Any:
    return build_authenticator(given, lambda: MetadataImage("c"), Certificates(given))


def test_where_nobody_is_asked_there_is_nothing_to_prove() -> None:
    assert built(settings()) is None


def test_nodes_that_have_nothing_to_show_each_other_are_told() -> None:
    with pytest.raises(ConfigError, match="none would let in another one") as caught:
        built(settings(sasl=SCRAM, cluster=VOTERS))
    assert caught.value.key == "sasl.node_user"
    alone = built(settings(sasl=SCRAM))
    alone.close()


def test_passwords_of_http_need_users() -> None:
    given = settings(http={"basic_auth": True})
    with pytest.raises(ConfigError, match="no users without a login") as caught:
        NodeSecurity(given, lambda: MetadataImage("c").rules, None, NodeMetrics())
    assert caught.value.key == "http.basic_auth"
