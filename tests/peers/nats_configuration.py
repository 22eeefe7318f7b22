"""nats-server's flags and configuration, as settings of a node.

``parse`` reads the language of nats-server's files: maps, lists, quoted and bare words, comments.
``Translation`` gives the settings of a node that does the same for its clients, and raises
NotOfferedError for what no node does. What a node takes no notice of, because it changes nothing
for clients, is in IGNORED.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

Configuration = dict[str, Any]
Settings = dict[str, dict[str, Any]]

TOP_LEVEL: Final = {
    "max_payload": "payload_bytes_max",
    "max_subscriptions": "subscriptions_max",
    "max_connections": "connections_max",
    "max_control_line": "control_line_bytes_max",
}
"""Keys of nats-server's configuration, and of ``[nats_listen]``."""
IGNORED: Final = frozenset(
    {
        "debug",
        "http",
        "http_port",
        "jetstream",
        "leafnodes",
        "ports_file_dir",
        "server_name",
        "server_tags",
        "trace",
    }
)
TOKEN_LENGTH_MIN: Final = 16

_TOKEN = re.compile(
    r"""
    (?:\s|\#.*|//.*)* (?:
        (?P<quoted> "(?:[^"\\]|\\.)*" | '[^']*' )
      | (?P<sign> [{}\[\],:=] )
      | (?P<bare> (?: [^\s{}\[\],:="'\#] | (?<=[^\s]):(?=\S) )+ )
    )
    """,
    re.VERBOSE,
)
_REST = re.compile(r"(?:\s|\#.*|//.*)*\Z")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)?")
_DURATION_MS: Final = {None: 1000, "ms": 1, "s": 1000, "m": 60_000}


class NotOfferedError(Exception):
    """What the test wants of its server is not to be had."""


class Word(NamedTuple):
    text: str
    is_sign: bool = False
    is_quoted: bool = False


def parse(text: str) -> Configuration:
    """Raises ValueError for what is no configuration."""
    words = list(_words(text))
    words.append(Word("}", is_sign=True))
    words.reverse()
    found = _map(words, ())
    if words:
        raise ValueError(f"{words[-1].text!r} after the end")
    return found


def _words(text: str) -> Iterator[Word]:
    position = 0
    while _REST.match(text, position) is None:
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"{text[position : position + 20]!r} is no word")
        position = match.end()
        if match["quoted"]:
            yield Word(match["quoted"][1:-1], is_quoted=True)
        else:
            yield Word(match["sign"] or match["bare"], is_sign=bool(match["sign"]))


class Scope:
    """One map. A key is also the variable ``$KEY`` for what follows in it; a key that is used as
    one is no more than that.
    """

    def __init__(self) -> None:
        self.values: Configuration = {}
        self.variables: set[str] = set()


def _map(words: list[Word], outer: tuple[Scope, ...]) -> Configuration:
    """Up to and with its brace."""
    scope = Scope()
    while (key := words.pop()) != Word("}", is_sign=True):
        if key == Word(",", is_sign=True):
            continue
        name, colon, rest = key.text.partition(":")
        if colon and not key.is_quoted:  # no key has one, though a value may
            key = Word(name)
            words += [Word(rest)] if rest else []
        elif words[-1] in (Word(":", is_sign=True), Word("=", is_sign=True)):
            words.pop()
        scope.values[key.text] = _value(words, (scope, *outer))
    return {key: value for key, value in scope.values.items() if key not in scope.variables}


def _value(words: list[Word], scopes: tuple[Scope, ...]) -> Any:
    """``scopes``: the innermost first."""
    word = words.pop()
    if word == Word("{", is_sign=True):
        return _map(words, scopes)
    if word != Word("[", is_sign=True):
        return word.text if word.is_quoted else _resolved(word.text, scopes)
    found = []
    while words[-1] != Word("]", is_sign=True):
        if words[-1] == Word(",", is_sign=True):
            words.pop()
        else:
            found.append(_value(words, scopes))
    words.pop()
    return found


def _resolved(text: str, scopes: tuple[Scope, ...]) -> Any:
    name = text.removeprefix("$")
    for scope in scopes:
        if name != text and name in scope.values:
            scope.variables.add(name)
            return scope.values[name]
    return text


class Node(NamedTuple):
    """What a node is to be started with."""

    settings: Settings
    users: dict[str, str]
    """Passwords by names."""
    token: str | None


class Translation:
    """Of one server."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._listen: dict[str, Any] = {}
        self._settings: Settings = {"nats_listen": self._listen}
        self._users: dict[str, str] = {}
        self._token: str | None = None

    def node(self) -> Node:
        """Raises NotOfferedError."""
        for name, value in self._configuration.items():
            key = name.lower()
            if key in TOP_LEVEL:
                self._listen[TOP_LEVEL[key]] = _number(key, value)
            elif (method := getattr(self, f"_{key}", None)) is not None:
                method(value)
            elif key not in IGNORED:
                raise NotOfferedError(f"`{key}` of nats-server's configuration")
        return Node(self._settings, self._users, self._token)

    def _port(self, value: str) -> None:
        self._listen["port"] = int(value)

    def _host(self, value: str) -> None:
        self._listen["host"] = "127.0.0.1"

    _net = _host

    def _websocket(self, value: Configuration) -> None:
        """A port of its own, which the tests of the other transport leave alone."""

    def _cluster(self, value: Configuration) -> None:
        """Nodes are numbered as the ports that they listen on for each other. The first route's
        is the only voter, so that the others may come and go.
        """
        listen = _port_of(value.get("listen", ""))
        routes = value.get("routes") or [value.get("listen", "")]
        voter = _port_of(routes[0])
        self._settings["node"] = {"id": listen}
        self._settings["kafka"] = {"port": listen}
        self._settings["cluster"] = {"id": "test", "voters": [f"{voter}@127.0.0.1:{voter}"]}

    def _ping_interval(self, value: str) -> None:
        self._listen["ping_interval_ms"] = _milliseconds(value)

    def _write_deadline(self, value: str) -> None:
        self._listen["write_timeout_ms"] = _milliseconds(value)

    def _tls(self, value: Configuration) -> None:
        value = dict(value)
        tls: dict[str, Any] = {"cert": value.pop("cert_file"), "key": value.pop("key_file")}
        if (authority := value.pop("ca_file", None)) is not None:
            tls["client_ca"] = authority
        verifies = _is_true(value.pop("verify", "false"))
        tls["client_auth"] = "required" if verifies else "none"
        first = value.pop("handshake_first", "false")
        if _DURATION.fullmatch(first):
            raise NotOfferedError("a greeting before TLS for those who wait (`handshake_first`)")
        self._listen["tls_first"] = _is_true(first)
        value.pop("timeout", None)
        _refuse_rest("tls", value)
        self._settings["tls"] = tls
        self._settings["http"] = {"tls": False}

    def _authorization(self, value: Configuration) -> None:
        value = dict(value)
        value.pop("timeout", None)
        if (name := value.pop("user", value.pop("username", None))) is not None:
            self._user({"user": name, "password": value.pop("pass", value.pop("password", ""))})
        if (token := value.pop("token", None)) is not None:
            if len(token) < TOKEN_LENGTH_MIN:
                raise NotOfferedError(f"tokens of less than {TOKEN_LENGTH_MIN} characters")
            self._token = token
        if (permissions := value.pop("default_permissions", None)) is not None:
            self._permit("default", permissions)
        for user in value.pop("users", ()):
            self._user(user)
        _refuse_rest("authorization", value)

    def _accounts(self, value: dict[str, Configuration]) -> None:
        """One account is what a node has."""
        named = {name: it for name, it in value.items() if name.upper() not in ("SYS", "$SYS")}
        if len(named) > 1:
            raise NotOfferedError("accounts")
        for account in named.values():
            for user in account.get("users", ()):
                self._user(user)
            rest = {key: account[key] for key in account if key not in ("jetstream", "users")}
            _refuse_rest("accounts", rest)

    def _user(self, value: Configuration) -> None:
        value = dict(value)
        name = value.pop("user", value.pop("username", None))
        if (key := value.pop("nkey", None)) is not None:
            name = f"key{len(self._settings.setdefault('authorization', {}).get('nkeys', {}))}"
            self._settings["authorization"].setdefault("nkeys", {})[key] = name
        elif name is not None:
            self._users[name] = value.pop("pass", value.pop("password", ""))
            self._listen["password_auth"] = True
        if (permissions := value.pop("permissions", value.pop("permission", None))) is not None:
            self._permit(str(name), permissions)
        _refuse_rest("users", value)

    def _permit(self, name: str, value: Configuration) -> None:
        value = dict(value)
        lists = {
            side: _subjects(value.pop(key))
            for key, side in (
                ("publish", "publish"),
                ("pub", "publish"),
                ("subscribe", "subscribe"),
                ("sub", "subscribe"),
            )
            if key in value
        }
        if (responses := value.pop("allow_responses", None)) is not None:
            lists["replies_max"] = (
                int(responses.get("max", 1)) if isinstance(responses, dict) else 1
            )
        _refuse_rest("permissions", value)
        self._listen.setdefault("permissions", {})[name] = lists

    def _operator(self, value: str) -> None:
        self._listen["operator"] = value

    def _resolver(self, value: object) -> None:
        if not isinstance(value, str) or value.upper() != "MEMORY":
            raise NotOfferedError("a resolver that is asked for accounts")

    def _resolver_preload(self, value: dict[str, str]) -> None:
        self._listen["account_jwts"] = list(value.values())

    def _system_account(self, value: str) -> None:
        """A node has none, and says so to what asks it."""


def _subjects(value: Any) -> Any:
    if isinstance(value, str):
        return {"allow": [value]}
    if isinstance(value, list):
        return {"allow": value}
    return {it: [value[it]] if isinstance(value[it], str) else value[it] for it in value}


def _refuse_rest(where: str, rest: Configuration) -> None:
    if rest:
        raise NotOfferedError(f"`{next(iter(rest))}` of `{where}` in nats-server's configuration")


def _number(key: str, value: str) -> int:
    if not value.isdigit():
        raise NotOfferedError(f"`{key}` of nats-server's configuration")
    return int(value)


def _port_of(address: str) -> int:
    port = address.rpartition(":")[2]
    if not port.isdigit():
        raise NotOfferedError("a cluster whose members choose their ports")
    return int(port)


def _milliseconds(value: str) -> int:
    match = _DURATION.fullmatch(value)
    if match is None:
        raise ValueError(f"{value!r} is no duration")
    return int(float(match[1]) * _DURATION_MS[match[2]])


def _is_true(value: str) -> bool:
    return value.lower() in ("true", "yes", "on", "1")


def from_flags(arguments: list[str]) -> Configuration:
    """Of a command line, over the file that it names. Raises NotOfferedError, OSError."""
    words = iter(arguments)
    given: Configuration = {}
    found: Configuration = {}
    for word in words:
        flag, _, value = word.lstrip("-").partition("=")
        if flag in ("c", "config"):
            found = parse(Path(value or next(words)).read_text())
        elif flag in ("user", "pass", "auth"):
            key = "token" if flag == "auth" else flag
            given.setdefault("authorization", {})[key] = value or next(words)
        elif flag in ("tlscert", "tlskey", "tlscacert"):
            key = {"tlscert": "cert_file", "tlskey": "key_file", "tlscacert": "ca_file"}[flag]
            given.setdefault("tls", {})[key] = value or next(words)
        elif flag in ("p", "port", "m", "http_port", "a", "addr"):
            key = {"p": "port", "m": "http_port", "a": "host", "addr": "host"}.get(flag, flag)
            given[key] = value or next(words)
        elif flag == "tlsverify":
            given.setdefault("tls", {})["verify"] = "true"
        elif flag in ("cluster_listen", "cluster_name"):
            key = flag.removeprefix("cluster_")
            given.setdefault("cluster", {})[key] = value or next(words)
        elif flag == "routes":
            given.setdefault("cluster", {})["routes"] = (value or next(words)).split(",")
        elif flag in ("sd", "store_dir"):
            _ = value or next(words)
        elif flag not in ("tls", "js", "jetstream", "DV", "D", "V"):
            raise NotOfferedError(f"the flag -{flag} of nats-server")
    return {**found, **given}
