import pytest

from streamlog.authn.principal import ANONYMOUS, Principal
from streamlog.config import SaslSection
from streamlog.errors import AuthenticationFailed, LoginRequired
from streamlog.kafka.auth.authenticator import Authenticator
from streamlog.kafka.auth.peer import Peer
from streamlog.kafka.context import Context
from streamlog.wire import registry
from streamlog.wire.registry import APIS
from tests.kafka_node import KafkaNode

METADATA = APIS[registry.METADATA]


def peer(sasl: SaslSection | None, own: str | None = None) -> Peer:
    """On a node that shows a certificate of this subject."""
    node = KafkaNode(sasl=sasl)
    context: Context = node.listener._context
    if sasl is not None:
        authenticator = Authenticator.load(sasl, lambda: node.metadata.image, lambda: own)
        object.__setattr__(context, "authenticator", authenticator)
    node.close()
    return Peer(context, "10.0.0.7")


def test_where_nobody_is_asked_everybody_is_let_in() -> None:
    it = peer(None)
    assert it.is_let_in
    assert not it.is_guarded
    it.show("CN=alice")
    assert it.context.session.principal is ANONYMOUS
    assert not it.context.authentication_on


def test_a_client_id_is_told_and_proves_nothing() -> None:
    it = peer(SaslSection())
    assert it.call("app").session.client_id == "app"
    assert it.context.session.host == "10.0.0.7"
    assert it.host == "/10.0.0.7"
    with pytest.raises(LoginRequired, match="Metadata before a login"):
        it.admit(METADATA)


def test_a_certificate_says_who_it_is() -> None:
    it = peer(SaslSection(principal_mapping_rules="RULE:CN=(.*)/$1/"), own="CN=node")
    it.call("app")
    it.show("CN=alice")
    it.admit(METADATA)
    session = it.context.session
    assert (session.principal, session.is_node) == (Principal.user("alice"), False)
    assert (session.client_id, session.host) == ("app", "10.0.0.7")


@pytest.mark.parametrize("subject", ["CN=node", "CN=other node"])
def test_nodes_are_told_by_their_certificates(subject: str) -> None:
    it = peer(SaslSection(node_principals=("CN=other node",)), own="CN=node")
    it.show(subject)
    assert it.context.session.is_node


def test_a_certificate_that_no_rule_fits_is_refused() -> None:
    with pytest.raises(AuthenticationFailed, match="no rule"):
        peer(SaslSection(principal_mapping_rules="RULE:CN=a/a/")).show("CN=b")
