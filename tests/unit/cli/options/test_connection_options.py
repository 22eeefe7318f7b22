"""What the commands take from the environment."""

import pytest

from streamlog.cli.options.added_options import added_options
from streamlog.cli.options.connection_options import _check_environment, connection
from streamlog.errors import ConfigError


def test_variables_of_options_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BOOTSTRAP_SERVER", "TLS_CA", "USER", "PASSWORD_FILE", "MECHANISM"):
        monkeypatch.setenv(f"STREAMLOG_CLIENT_{name}", "x")
    _check_environment(added_options(connection).params)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("STREAMLOG_CLIENT_BOOTSTRAP_SERVERS", "did you mean STREAMLOG_CLIENT_BOOTSTRAP_SERVER?"),
        ("STREAMLOG_CLIENT_TLSCA", "did you mean STREAMLOG_CLIENT_TLS_CA?"),
        ("STREAMLOG_CLIENT_", "docs/commands.md"),
    ],
)
def test_an_unknown_variable_is_an_error(
    monkeypatch: pytest.MonkeyPatch, name: str, remedy: str
) -> None:
    monkeypatch.setenv(name, "x")
    with pytest.raises(ConfigError) as caught:
        _check_environment(added_options(connection).params)
    assert caught.value.key == name and remedy in caught.value.remedy
