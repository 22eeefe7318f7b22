"""Operations as they are asked for by name: arguments and results in JSON, acts in the audit log."""

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import Any, cast

import pytest

from streamlog.authn.principal import Principal
from streamlog.authn.session import Session
from streamlog.authz.audit import Audit
from streamlog.control.control import OPERATIONS
from streamlog.control.operation import (
    DONE,
    Caller,
    Operations,
    operation,
    specs_of,
)
from streamlog.errors import InvalidRequest, MalformedFrame, RequestTimedOut, StreamNotFound
from streamlog.metrics import NodeMetrics
from streamlog.wire.operation_request import decode_operation, encode_operation, is_operation


class ServiceStub:
    """What ``Operations`` needs of the service."""

    def __init__(self) -> None:
        self.audit = Audit()
        self.metrics = NodeMetrics()

    def metadata_for(self, access: object) -> None:
        return None


@dataclass(frozen=True)
class Kettle:
    name: str
    trouble: str = ""

    def __str__(self) -> str:
        return self.name


class KettleOperations(Operations):
    group = "kettle"
    failure: BaseException | None = None

    @operation("POST /kettles/{name}", about=("name",), act=True)
    async def boil(self, name: str, degrees: int = 100, validate_only: bool = False) -> int:
        """Boil it.

        Until it whistles.
        """
        if self.failure is not None:
            raise self.failure
        return degrees

    @operation("POST /kettles/fill", about=("kettles",), act=True, outcomes=lambda told: told)
    async def fill(self, kettles: tuple[Kettle, ...]) -> tuple[str, ...]:
        """Fill those that are not full."""
        return tuple(it.trouble or DONE for it in kettles)

    @operation("GET /kettles")
    async def look(self) -> tuple[str, ...]:
        """Look at all of them."""
        return ("a", "b")


@pytest.fixture
def kettles() -> KettleOperations:
    caller = Caller(Session(Principal.user("alice"), "10.0.0.1"), by="HTTP")
    return KettleOperations(cast(Any, ServiceStub()), caller)


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    return [(it.getMessage(), vars(it)) for it in caplog.records if it.name == "streamlog.audit"]


SPECS = specs_of(KettleOperations)


def test_an_operation_tells_what_it_takes_and_returns() -> None:
    assert list(SPECS) == ["kettle.boil", "kettle.fill", "kettle.look"]
    boil = SPECS["kettle.boil"]
    assert (boil.summary, boil.is_act, boil.http) == ("Boil it.", True, "POST /kettles/{name}")
    schema = boil.arguments.model_json_schema()
    assert schema["required"] == ["name"] and schema["properties"]["degrees"]["default"] == 100
    assert SPECS["kettle.look"].dump(("a", "b")) == ["a", "b"]


def test_all_wrong_arguments_are_named_at_once() -> None:
    with pytest.raises(InvalidRequest) as refused:
        SPECS["kettle.boil"].read({"degrees": "hot", "colour": "red"})
    assert all(it in str(refused.value) for it in ("name: ", "degrees: ", "colour: "))


async def test_an_act_is_audited_with_who_what_and_by_which_protocol(
    kettles: KettleOperations, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streamlog.audit")
    assert await kettles.boil("k", degrees=90) == 90
    await kettles.look()
    ((event, line),) = told(caplog)
    assert event == "act"
    assert (line["act"], line["resources"], line["outcome"]) == ("kettle.boil", ["k"], "none")
    assert (line["principal"], line["host"], line["by"]) == ("User:alice", "10.0.0.1", "HTTP")


@pytest.mark.parametrize(
    ("failure", "event"),
    [
        (StreamNotFound("no such"), "attempt"),
        (RequestTimedOut("perhaps"), "act"),
        (asyncio.CancelledError(), "act"),
        (ZeroDivisionError(), "act"),
    ],
)
async def test_what_may_have_been_done_is_an_act_in_the_audit_log(
    kettles: KettleOperations,
    caplog: pytest.LogCaptureFixture,
    failure: BaseException,
    event: str,
) -> None:
    caplog.set_level(logging.INFO, "streamlog.audit")
    kettles.failure = failure
    with pytest.raises(type(failure)):
        await kettles.boil(name="k")
    assert [it for it, _ in told(caplog)] == [event]


async def test_operations_are_counted_by_protocol_and_error(kettles: KettleOperations) -> None:
    def count(operation: str, error: str = "", by: str = "HTTP") -> float | None:
        labels = {"operation": f"kettle.{operation}", "by": by, "error": error}
        return registry.get_sample_value("streamlog_operations_total", labels)

    registry = kettles._service.metrics.registry
    await kettles.look()
    await kettles.look()
    await kettles.boil("k")
    kettles.failure = StreamNotFound("no such")
    with pytest.raises(StreamNotFound):
        await kettles.boil("k")
    assert (count("look"), count("boil"), count("boil", "StreamNotFound")) == (2, 1, 1)
    assert count("look", by="Kafka") is None
    taken = {"operation": "kettle.boil", "by": "HTTP"}
    assert registry.get_sample_value("streamlog_operation_seconds_total", taken) is not None


async def test_a_dry_run_is_no_act(
    kettles: KettleOperations, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streamlog.audit")
    await kettles.boil("k", validate_only=True)
    assert told(caplog) == []


def test_an_operation_travels_in_an_envelope() -> None:
    data = encode_operation("streams.describe", {"name": "s"})
    assert is_operation(data)
    assert decode_operation(data) == ("streams.describe", {"name": "s"})
    for wrong in (b'{"operation":', b'{"operation":"x","arguments":7}', b"[]", b"\xff"):
        with pytest.raises(MalformedFrame):
            decode_operation(wrong)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_has_a_schema_a_summary_and_a_place(name: str) -> None:
    spec = OPERATIONS[name]
    assert spec.arguments.model_json_schema()["type"] == "object"
    spec.result.json_schema()
    assert spec.summary.endswith(".")
    method, _, path = spec.http.partition(" ")
    assert method in ("GET", "POST", "PUT", "PATCH", "DELETE") and path.startswith("/")
    assert (method == "GET") == (not spec.is_act)
    in_path = {it[1:-1] for it in path.split("/") if it.startswith("{")}
    assert in_path <= set(spec.arguments.model_fields)


def test_what_has_names_is_an_object_in_json() -> None:
    """Not a list of values whose places one has to know."""
    schemas = {
        name: spec.result.json_schema(mode="serialization") for name, spec in OPERATIONS.items()
    }
    described = schemas["streams.describe"]
    assert {"config", "partitions"} <= set(described["properties"])
    assert "isr" in described["$defs"]["PartitionDescription"]["properties"]
    assert not [name for name, it in schemas.items() if "prefixItems" in json.dumps(it)]


def test_no_two_operations_have_one_place() -> None:
    places = [spec.http for spec in OPERATIONS.values()]
    assert len(set(places)) == len(places)


async def test_an_act_on_many_is_one_line_that_says_what_came_of_each(
    kettles: KettleOperations, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streamlog.audit")
    await kettles.fill((Kettle("a"), Kettle("b", "KettleFull"), Kettle("c")))
    await kettles.fill((Kettle("b", "KettleFull"),))
    await kettles.fill(())
    assert [(event, it["resources"], it["outcome"]) for event, it in told(caplog)] == [
        ("act", ["a", "b", "c"], "none 2, KettleFull 1"),
        ("attempt", ["b"], "KettleFull 1"),
        ("attempt", [""], "none"),
    ]
