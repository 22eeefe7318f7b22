import ssl
from pathlib import Path

import pytest
import trustme

from pyspark_streamlog.options.read_options import SourceOptions
from streamlog.arrow.offset_ranges import plan_offset_ranges
from streamlog.arrow.options.security_files import SecurityFiles
from streamlog.arrow.range_reader import open_location
from streamlog.arrow.servers.fetch_reader import FetchReader
from streamlog.config import SaslSection
from streamlog.errors import AuthenticationFailed, ConfigError
from streamlog.record.columns import arrow_schema
from tests.certificate_authority import CertificateAuthority
from tests.kafka_node import ThreadedNode


def security(**given: str) -> SecurityFiles:
    options = {f"security.{name}": value for name, value in given.items()}
    found = SourceOptions.parse({"servers": "a:1", **options}).security
    assert isinstance(found, SecurityFiles)
    return found


def test_without_files_and_without_tls_all_is_in_the_clear() -> None:
    assert security().context() is None
    assert security(tls="false").context() is None
    assert isinstance(security(tls="true").context(), ssl.SSLContext)


def test_a_file_asks_for_tls() -> None:
    assert security(caFile="/ca.pem").has_tls


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"tls": "false", "caFile": "/ca.pem"}, r"security\.caFile: security\.tls is false"),
        ({"certFile": "/c.pem"}, r"security\.certFile: security\.keyFile is missing"),
        ({"keyPasswordFile": "/p"}, r"security\.keyPasswordFile: security\.certFile is missing"),
        ({"tls": "maybe"}, r"security\.tls: 'maybe' is wrong"),
    ],
)
def test_options_that_do_not_fit(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^{problem}"):
        security(**given)


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("hunter2")
    with pytest.raises(ConfigError, match=r"^security\.caFile: .*nowhere\.pem cannot be used"):
        security(caFile=str(tmp_path / "nowhere.pem")).context()
    with pytest.raises(ConfigError, match=r"^security\.caFile: .*nonsense\.pem") as caught:
        security(caFile=str(nonsense)).context()
    assert "hunter2" not in str(caught.value)


def test_a_key_may_have_a_password_in_a_file(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as s

    issued = trustme.CA().issue_cert("client")
    key = s.load_pem_private_key(issued.private_key_pem.bytes(), None)
    cert_file, key_file, word = tmp_path / "c.pem", tmp_path / "k.pem", tmp_path / "word"
    issued.cert_chain_pems[0].write_to_path(str(cert_file))
    encryption = s.BestAvailableEncryption(b"hunter2")
    key_file.write_bytes(
        key.private_bytes(s.Encoding.PEM, s.PrivateFormat.TraditionalOpenSSL, encryption)
    )
    files = {"certFile": str(cert_file), "keyFile": str(key_file)}
    with pytest.raises(ConfigError, match=r"^security\.keyFile: the key is encrypted"):
        security(**files).context()
    word.write_text("wrong\n")
    with pytest.raises(ConfigError, match=r"^security\.certFile: .*c\.pem cannot be used"):
        security(**files, keyPasswordFile=str(word)).context()
    word.write_text("hunter2\n")
    assert security(**files, keyPasswordFile=str(word)).context() is not None


def test_records_are_read_through_tls(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    server, alice = authority.server(authority.issue("node"), "required"), authority.issue("alice")
    with ThreadedNode(tls=lambda: server) as node:
        node.add_stream("orders")
        node.append("orders", [b"a", b"b"])
        given = {
            "servers": f"localhost:{node.node.port}",
            "subscribe": "orders",
            "fetchTimeoutMs": "10000",
            "security.caFile": str(authority.ca),
            "security.certFile": str(alice.cert),
            "security.keyFile": str(alice.key),
        }
        options = SourceOptions.parse(given)
        with open_location(options) as place:
            (task,) = place.cut(plan_offset_ranges(place, options), 1 << 20, 1)
        (batch,) = FetchReader(task, options, arrow_schema(["value"])).read()
        assert batch.to_pydict() == {"value": [b"a", b"b"]}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"user": "alice"}, r"security\.passwordFile: is missing"),
        ({"passwordFile": "/p"}, r"security\.user: is missing"),
        ({"mechanism": "PLAIN"}, r"security\.mechanism: security\.user or security\.tokenFile"),
        ({"mechanism": "GSSAPI", "user": "a"}, r"security\.mechanism: 'GSSAPI' is wrong"),
        ({"user": "a", "tokenFile": "/t"}, r"security\.mechanism: OAUTHBEARER wants"),
        (
            {"mechanism": "PLAIN", "user": "a", "passwordFile": "/p", "tokenFile": "/t"},
            r"security\.tokenFile: PLAIN has no use for it",
        ),
    ],
)
def test_logins_that_do_not_fit(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^{problem}"):
        security(**given)


def test_a_secret_is_named_by_its_file_and_read_where_it_is_used(tmp_path: Path) -> None:
    word = tmp_path / "word"
    given = security(user="alice", passwordFile=str(word))
    login = given.login()
    assert login is not None
    assert (login.mechanism, login.user) == ("SCRAM-SHA-512", "alice")
    with pytest.raises(ConfigError, match=r"^security\.passwordFile"):
        login.secret()
    word.write_text("hunter2\n")
    assert login.secret() == "hunter2"
    assert "hunter2" not in repr(given) + repr(login)
    token = security(tokenFile=str(word)).login()
    assert token is not None
    assert (token.mechanism, token.secret()) == ("OAUTHBEARER", "hunter2")
    assert security().login() is None


def test_records_are_read_after_a_login(tmp_path: Path) -> None:
    word = tmp_path / "word"
    word.write_text("secret\n")
    sasl = SaslSection(mechanisms=("SCRAM-SHA-512",), failure_delay_ms=0)
    with ThreadedNode(sasl=sasl) as node:
        node.call(lambda: node.node.metadata.add_user("alice", "secret"))
        node.add_stream("orders")
        node.append("orders", [b"a", b"b"])
        given = {"servers": node.address, "subscribe": "orders", "security.user": "alice"}
        options = SourceOptions.parse({**given, "security.passwordFile": str(word)})
        with open_location(options) as place:
            (task,) = place.cut(plan_offset_ranges(place, options), 1 << 20, 1)
        (batch,) = FetchReader(task, options, arrow_schema(["value"])).read()
        assert batch.to_pydict() == {"value": [b"a", b"b"]}
        word.write_text("wrong\n")
        with pytest.raises(AuthenticationFailed), open_location(options) as place:
            plan_offset_ranges(place, options)
