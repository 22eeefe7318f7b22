from typing import Any

import pytest

from streamlog.jetstream.errors import ApiRefused
from streamlog.jetstream.requests.fields import number, text


def test_what_is_not_there() -> None:
    assert (number({}, "seq"), text({}, "peer")) == (0, "")


def test_what_is_there() -> None:
    assert number({"seq": 7}, "seq") == 7
    assert text({"peer": "node-2"}, "peer") == "node-2"


@pytest.mark.parametrize("value", [-1, True, "7", 1.5, [1]])
def test_no_number(value: Any) -> None:
    with pytest.raises(ApiRefused):
        number({"seq": value}, "seq")
