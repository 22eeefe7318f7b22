from typing import Any

import pytest

from streamlog.admin.errors import Refused
from streamlog.admin.fields import number, preferred, text


def test_what_is_not_there() -> None:
    assert (number({}, "seq"), text({}, "peer"), preferred({})) == (0, "", "")
    assert preferred({"placement": None}) == preferred({"placement": {"preferred": ""}}) == ""


def test_what_is_there() -> None:
    assert number({"seq": 7}, "seq") == 7
    assert preferred({"placement": {"preferred": "node-2", "tags": [], "cluster": ""}}) == "node-2"


@pytest.mark.parametrize("value", [-1, True, "7", 1.5, [1]])
def test_no_number(value: Any) -> None:
    with pytest.raises(Refused):
        number({"seq": value}, "seq")


@pytest.mark.parametrize("placement", [7, "node-1", {"preferred": 7}, {"cluster": "east"}])
def test_no_placement(placement: Any) -> None:
    with pytest.raises(Refused):
        preferred({"placement": placement})
