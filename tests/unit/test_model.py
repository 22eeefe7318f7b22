from typing import get_args

from streamlog.authn.scram import Scram
from streamlog.client.security import ClientLogin
from streamlog.model import MECHANISMS, ScramName


def test_the_scrams_are_those_of_the_exchange() -> None:
    assert {scram.value for scram in Scram} == set(get_args(ScramName)) < set(MECHANISMS)


def test_kafka_s_requests_know_them_by_other_numbers() -> None:
    assert {scram.value: scram.number for scram in Scram} == {
        "SCRAM-SHA-256": 1,
        "SCRAM-SHA-512": 2,
    }


def test_a_client_can_begin_by_each_mechanism() -> None:
    for mechanism in MECHANISMS:
        steps = ClientLogin(mechanism, "alice", lambda: "secret").steps("node")
        assert next(steps)[1] == {"mechanism": mechanism}
        _, message = steps.send({"error_code": 0, "mechanisms": []})
        assert message["auth_bytes"]
