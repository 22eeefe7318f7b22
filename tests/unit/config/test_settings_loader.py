"""Settings: one clear line for whatever is wrong with them."""

import re
import tomllib
from pathlib import Path

import pytest

from streamlog.config import Section, Settings, load_settings, read_settings
from streamlog.errors import ConfigError
from tests.unit.schemas import whole_numbers

EXAMPLE = Path(__file__).parents[3] / "config" / "node.toml"
MINIMAL = '[node]\ndata_dir = "data"\n'


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(text)
    return path


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(write(tmp_path, text))
    line = str(caught.value)
    assert "\n" not in line
    return line


def model_keys() -> set[str]:
    keys = set()
    for name, field in Settings.model_fields.items():
        assert isinstance(field.annotation, type)
        assert issubclass(field.annotation, Section)
        keys |= {f"{name}.{key}" for key in field.annotation.model_fields}
    return keys


def test_the_example_shows_every_key_with_its_default() -> None:
    text = re.sub(r"^#(?=\w+ = )", "", EXAMPLE.read_text(), flags=re.MULTILINE)
    content = tomllib.loads(text)
    shown = {f"{section}.{key}" for section, table in content.items() for key in table}
    assert shown == model_keys()
    settings = load_settings(EXAMPLE)
    assert settings == Settings(node={"data_dir": "data/node-1"})


def test_the_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, MINIMAL + "[kafka]\nport = 1\nhost = '::1'\n")
    monkeypatch.setenv("STREAMLOG_KAFKA__PORT", "9093")
    monkeypatch.setenv("STREAMLOG_NATS__SERVERS", "nats://a:1, nats://b:2")
    settings = load_settings(path)
    assert (settings.kafka.host, settings.kafka.port) == ("::1", 9093)
    assert settings.nats.servers == ("nats://a:1", "nats://b:2")


def test_super_users_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names with blanks and commas stay whole: half of one may be another user."""
    monkeypatch.setenv("STREAMLOG_NODE__DATA_DIR", "/somewhere")
    monkeypatch.setenv(
        "STREAMLOG_AUTHORIZATION__SUPER_USERS", "User:Jane Doe; User:CN=ops,O=example"
    )
    assert load_settings(None).authorization.super_users == (
        "User:Jane Doe",
        "User:CN=ops,O=example",
    )
    monkeypatch.setenv("STREAMLOG_AUTHORIZATION__SUPER_USERS", '["User:a;b", "User:c"]')
    assert load_settings(None).authorization.super_users == ("User:a;b", "User:c")


def test_node_principals_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """One a line. A part of a subject may be the name of somebody who is no node."""
    monkeypatch.setenv("STREAMLOG_NODE__DATA_DIR", "/somewhere")
    one, two = "CN=node 1,OU=log;x,O=Example\\, Inc.", "CN=node 2,O=Example"
    for text in (f"{one}\n{two}", f"\n  {one}  \r\n\n{two}\n"):
        monkeypatch.setenv("STREAMLOG_SASL__NODE_PRINCIPALS", text)
        assert load_settings(None).sasl.node_principals == (one, two)
    monkeypatch.setenv("STREAMLOG_SASL__NODE_PRINCIPALS", one)
    assert load_settings(None).sasl.node_principals == (one,)
    monkeypatch.setenv("STREAMLOG_SASL__NODE_PRINCIPALS", "\n")
    assert load_settings(None).sasl.node_principals == ()


@pytest.mark.parametrize("text", ["User:CN=a,O=b,C=c", " User:CN=a,O=b,C=c ", "User:Jane  Doe"])
def test_a_super_user_stays_whole(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("STREAMLOG_NODE__DATA_DIR", "/somewhere")
    monkeypatch.setenv("STREAMLOG_AUTHORIZATION__SUPER_USERS", text)
    assert load_settings(None).authorization.super_users == (text.strip(),)


@pytest.mark.parametrize("text", ["", ";", "User:a;", "User:a;O=b", '["User:a"', "[1]"])
def test_what_names_no_super_user_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("STREAMLOG_NODE__DATA_DIR", "/somewhere")
    monkeypatch.setenv("STREAMLOG_AUTHORIZATION__SUPER_USERS", text)
    with pytest.raises(ConfigError, match=r"(?i)authorization[._]+super_users"):
        load_settings(None)


def test_a_comma_in_a_password_of_nats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMLOG_NODE__DATA_DIR", "/somewhere")
    monkeypatch.setenv("STREAMLOG_NATS__SERVERS", "nats://user:pass,word@host:4222")
    with pytest.raises(ConfigError, match="%2C"):
        load_settings(None)
    monkeypatch.setenv("STREAMLOG_NATS__SERVERS", "nats://user:pass%2Cword@host:4222")
    assert load_settings(None).nats.servers == ("nats://user:pass%2Cword@host:4222",)


def test_no_file_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMLOG_NODE__DATA_DIR", "/somewhere")
    assert load_settings(None).node.data_dir == Path("/somewhere")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (MINIMAL + "[kafka]\nprot = 1\n", "kafka.prot: no such key"),
        (MINIMAL + "[kafak]\nport = 1\n", "kafak: no such key"),
        (MINIMAL + "[kafka]\nport = '9092'\n", "kafka.port: '9092' is wrong"),
        (MINIMAL + "[kafka]\nport = true\n", "kafka.port: True is wrong"),
        (MINIMAL + "[kafka]\nport = 70000\n", "kafka.port: 70000 is wrong"),
        (MINIMAL + "[nats]\nservers = [1]\n", "nats.servers.0: 1 is wrong"),
        (MINIMAL + "[nats]\nservers = []\n", "nats.servers: [] is wrong"),
        (MINIMAL + "[log]\nsync = 'sometimes'\n", "log.sync: 'sometimes' is wrong"),
        ("kafka = 3\n" + MINIMAL, "kafka: 3 is wrong"),
        ("[kafka]\nport = 1\n", "node.data_dir: is missing"),
        ("[node]\nid = 1\n", "node.data_dir: is missing"),
        ("[node]\ndata_dir = \n", "is not TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, key: str) -> None:
    assert key in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tls]\ncert = 'c.pem'\n", "cert and key are needed, or neither"),
        ("[tls]\nkey_password_file = 'w'\n", "key_password_file is for a key, and there is none"),
        ("[tls]\nclient_auth = 'required'\n", "client_auth is 'required', which needs client_ca"),
        ("[http]\ntls_key = 'k.pem'\n", "tls_cert and tls_key are needed, or neither"),
        ("[sasl]\nnode_user = 'n'\n", "node_user and node_password_file belong together"),
        (
            "[sasl]\nmechanisms = ['PLAIN']\nnode_user = 'n'\nnode_password_file = 'w'\n",
            "nodes log in by SCRAM-SHA-512: add it to mechanisms",
        ),
        (
            "[sasl]\nmechanisms = ['OAUTHBEARER']\noauth_jwks_file = 'k'\n",
            "OAUTHBEARER needs oauth_jwks_file, oauth_issuer and oauth_audience",
        ),
        ("[sasl]\noauth_issuer = 'https://i'\n", "of no use without OAUTHBEARER in mechanisms"),
        ("[authorization]\nsuper_users = ['admin']\n", "write kind and name, as in User:admin"),
        (
            "[cluster]\nleader_lease_ms = 9000\n",
            "heartbeat_interval_ms < leader_lease_ms < session_timeout_ms is needed",
        ),
        ("[replication]\ncopy_bytes_per_s = 9\n", "copy_bytes_per_s is 0, or at least 65536"),
        (
            "[groups]\nsession_timeout_ms_min = 9\nsession_timeout_ms_max = 8\n",
            "session_timeout_ms_min <= session_timeout_ms_max is needed",
        ),
    ],
)
def test_what_contradicts_itself_is_told(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(tmp_path, MINIMAL + text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read"):
        load_settings(tmp_path / "absent.toml")


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_settings(path)


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("STREAMLOG_KAFAK__PORT", "1", "STREAMLOG_KAFAK__PORT: no such setting"),
        ("STREAMLOG_NODE_ID", "1", "STREAMLOG_NODE_ID: no such setting"),
        ("STREAMLOG_KAFKA__PROT", "1", "STREAMLOG_KAFKA__PROT: no such key"),
        ("STREAMLOG_KAFKA__PORT", "x", "STREAMLOG_KAFKA__PORT: 'x' is wrong"),
        ("STREAMLOG_KAFKA", "x", "STREAMLOG_*: error parsing value"),
    ],
)
def test_a_wrong_variable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, problem: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert problem in refusal(tmp_path, MINIMAL)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[kafka]\nprot = 1\n", "kafka.prot: no such key; did you mean kafka.port?"),
        ("[kafak]\nport = 1\n", "kafak: no such key; did you mean kafka?"),
        (
            "[kafka]\ntoken_file = 't'\n",
            "kafka.token_file: no such key; did you mean http.token_file?",
        ),
        ("[kafka]\nxyzzy = 1\n", "kafka.xyzzy: no such key; remove it or correct its spelling"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(tmp_path, MINIMAL + text)


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("STREAMLOG_KAFKA__PROT", "did you mean STREAMLOG_KAFKA__PORT?"),
        ("STREAMLOG_KAFAK__PROT", "did you mean STREAMLOG_KAFKA__PORT?"),
        ("STREAMLOG_KAFAK", "did you mean STREAMLOG_KAFKA?"),
        ("STREAMLOG_XYZZY__PORT", "write STREAMLOG_<SECTION>__<KEY>"),
    ],
)
def test_an_unknown_variable_is_answered_with_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, said: str
) -> None:
    monkeypatch.setenv(variable, "1")
    line = refusal(tmp_path, MINIMAL)
    assert variable in line and said in line


def test_a_secret_is_not_shown(tmp_path: Path) -> None:
    line = refusal(tmp_path, MINIMAL + "[nats]\npassword = 12345\n")
    assert "nats.password" in line
    assert "12345" not in line


@pytest.mark.parametrize(
    "text",
    [
        "[nats]\ntoken = ['s3cret']\n",
        "[nats]\nservers = [{address = 'nats://u:s3cret@a'}]\n",
        "nats = {password = 's3cret', servers = []}\n",
        "[nats]\nreconnect_backoff_ms = 'nats://u:s3cret@a'\n",
    ],
)
def test_what_may_hold_a_secret_is_not_shown(tmp_path: Path, text: str) -> None:
    before, after = (text, MINIMAL) if text.startswith("nats =") else (MINIMAL, text)
    assert "s3cret" not in refusal(tmp_path, before + after)


def test_settings_in_full_show_no_secret(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, MINIMAL + "[nats]\nuser='u'\npassword='s3cret'\n"))
    assert "s3cret" not in f"{settings!r} {settings} {settings.model_dump()}"
    assert "s3cret" not in settings.model_dump_json()


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "node.toml"
    path.write_text("[kafka]\nprot = 1\nport = 'x'\n[log]\nsync = 'never'\n")
    monkeypatch.setenv("STREAMLOG_LOGG__SYNC", "os")
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    found = [caught.value, *caught.value.more]
    keys = {"kafka.prot", "kafka.port", "log.sync", "STREAMLOG_LOGG__SYNC"}
    assert keys <= {it.key for it in found}
    assert len({it.key for it in found}) == len(found), "each once"


def test_every_number_has_an_upper_bound() -> None:
    """One that is far too large is a slip, which is to end the start and not the node."""
    sections = [it.annotation for it in Settings.model_fields.values()]
    unbounded = [
        f"{section.__name__}.{name}"
        for section in sections
        if isinstance(section, type) and issubclass(section, Section)
        for name, bounds in whole_numbers(section.model_json_schema()).items()
        if "maximum" not in bounds
    ]
    assert unbounded == []


def test_all_contradictions_of_a_section_are_told(tmp_path: Path) -> None:
    path = write(
        tmp_path, MINIMAL + "[sasl]\nnode_user = 'n'\noauth_issuer = 'i'\n[tls]\nkey = 'k'\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    assert [str(it) for it in (caught.value, *caught.value.more)] == [
        "sasl: node_user and node_password_file belong together; correct one of them",
        "sasl: nodes log in by SCRAM-SHA-512: add it to mechanisms; correct one of them",
        "sasl: oauth_* are of no use without OAUTHBEARER in mechanisms; correct one of them",
        "tls: cert and key are needed, or neither; correct one of them",
    ]


def test_what_is_right_can_be_looked_at_beside_what_is_wrong(tmp_path: Path) -> None:
    path = write(
        tmp_path, MINIMAL + "[kafka]\nprot = 1\nhost = 'h'\n[log]\nsync = 1\n[tls]\ncert = 'c'\n"
    )
    read = read_settings(path)
    assert {it.key for it in read.mistakes} == {"kafka.prot", "log.sync", "tls"}
    assert read.settings is not None
    assert (read.settings.kafka.host, read.settings.log.sync) == ("h", "commit")
    assert read.settings.tls.cert is None, "with a contradiction the section is left out"
    assert {"prot", "port", "sync", "cert"} <= read.doubtful
    good = read_settings(write(tmp_path, MINIMAL))
    assert good == ((), load_settings(tmp_path / "node.toml"), frozenset())
