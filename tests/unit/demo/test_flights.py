import json

import pytest

from demo.flights import Flights, load_flights


@pytest.fixture(scope="module")
def flights() -> Flights:
    return load_flights()


def test_all_flights_are_there(flights: Flights) -> None:
    assert len(flights) == len(flights.subjects) == 336_776
    first = json.loads(flights.payloads[0])
    assert (first["carrier"], first["origin"], first["dep_delay"]) == ("UA", "EWR", 2)
    assert flights.subjects[0] == "flights.EWR.UA"


def test_what_is_not_known_is_null(flights: Flights) -> None:
    cancelled = next(p for p in map(json.loads, flights.payloads) if p["dep_time"] is None)
    assert cancelled["dep_delay"] is None
    assert cancelled["arr_delay"] is None


def test_delays_count_every_flight_once(flights: Flights) -> None:
    assert sum(count for count, _, _ in flights.delays.values()) == len(flights)
    assert flights.delays["UA", "EWR"][0] == sum(s == "flights.EWR.UA" for s in flights.subjects)
