import pytest

from streamlog.authn.principal import Principal
from streamlog.authn.principal_mapping import PrincipalMapping
from streamlog.errors import AuthenticationFailed, ConfigError

NAME = r"CN=Alice,OU=ops,O=Example\, Inc.,C=AT"


@pytest.mark.parametrize(
    ("rules", "user"),
    [
        ("DEFAULT", NAME),
        (r"RULE:^CN=([^,]+),.*$/$1/", "Alice"),
        (r"RULE:^CN=([^,]+),.*$/$1/L", "alice"),
        (r"RULE:^CN=([^,]+),OU=([^,]+),.*$/$2-$1/U", "OPS-ALICE"),
        (r"RULE:^CN=nobody$/x/, RULE:^CN=(\w+).*/$1@a\/b/, DEFAULT", "Alice@a/b"),
        ("RULE:^O=.*$/x/\nDEFAULT", NAME),
        (r"RULE:.*CN=(\w{1,5}),.*/$1/", "Alice"),
    ],
)
def test_the_first_rule_that_fits_says_who_it_is(rules: str, user: str) -> None:
    assert PrincipalMapping(rules).principal(NAME) == Principal.user(user)


def test_a_pattern_has_to_fit_the_whole_name() -> None:
    with pytest.raises(AuthenticationFailed, match="no rule"):
        PrincipalMapping("RULE:CN=Alice/alice/").principal(NAME)


@pytest.mark.parametrize("rules", ["RULE:.*//", "RULE:.*/ANONYMOUS/"])
def test_nobody_is_made_nobody(rules: str) -> None:
    with pytest.raises(AuthenticationFailed, match="no name"):
        PrincipalMapping(rules).principal(NAME)


@pytest.mark.parametrize(
    "rules",
    [
        "",
        "nonsense",
        "RULE:a/b",
        "RULE:a/b/X",
        "RULE:(/b/",
        "RULE:a/$1/",
        "DEFAULT DEFAULT",
        "DEFAULT;DEFAULT",
    ],
)
def test_a_rule_that_is_none_is_told_with_the_remedy(rules: str) -> None:
    with pytest.raises(ConfigError, match="principal_mapping_rules"):
        PrincipalMapping(rules)
