import pytest

from streamlog.errors import (
    InvalidChannelConfig,
    InvalidRecord,
    InvalidRequest,
    InvalidSignature,
    RecordTooLarge,
    StaleConfiguration,
)
from streamlog.ledger.core.channel_policy import ChannelPolicy
from streamlog.ledger.core.encoding import RECORD_BYTES
from streamlog.ledger.core.entry import (
    SIGNATURE_HEADER,
    SIGNER_HEADER,
    Message,
    configuration,
    signed,
    time_to_cut,
)
from tests.ledger_stream import ANN, BOB, EVE, channel, limits

OPEN = ChannelPolicy(channel(limits=limits(preferred=10, absolute=RECORD_BYTES + 10)))
CLOSED = ChannelPolicy(channel(writers=(ANN.identity,)))
X = Message(b"k", b"x")


def test_a_record_may_be_as_large_as_the_limit() -> None:
    OPEN.check_message(Message(None, bytes(10)))
    with pytest.raises(RecordTooLarge, match=r"39 bytes.*absolute_max_bytes.*38"):
        OPEN.check_message(Message(b"k", bytes(10)))


def test_the_mark_is_the_ledgers_own() -> None:
    for message in (time_to_cut(1, "n"), configuration(channel())):
        with pytest.raises(InvalidRecord, match="Streamlog-Ledger"):
            ChannelPolicy(channel()).check_message(message)


def test_a_writer_signs() -> None:
    CLOSED.check_message(signed(X, "c", ANN))
    OPEN.check_message(X)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (X, "wants a signature of its writers"),
        (signed(X, "c", EVE), "'eve' is no writer"),
        (signed(X, "d", ANN), "not that of 'ann'"),
        (signed(X, "c", ANN)._replace(value=b"y"), "not that of 'ann'"),
        (signed(X, "c", ANN)._replace(key=None), "not that of 'ann'"),
        (X._replace(headers=((SIGNER_HEADER, b"ann"),)), "wants a signature"),
        (X._replace(headers=((SIGNER_HEADER, b"ann"), (SIGNATURE_HEADER, b"!"))), "base64"),
        (X._replace(headers=((SIGNER_HEADER, b"\xff"), (SIGNATURE_HEADER, b"!"))), "no writer"),
    ],
)
def test_nothing_else_stands_for_it(message: Message, told: str) -> None:
    with pytest.raises(InvalidSignature, match=told):
        CLOSED.check_message(message)


def test_an_update_is_the_next_one_of_the_same_channel() -> None:
    admission = ChannelPolicy(channel(sequence=4))
    admission.check_update(channel(sequence=5))
    for sequence in (0, 4, 6):
        with pytest.raises(StaleConfiguration, match="where 5 follows"):
            admission.check_update(channel(sequence=sequence))
    with pytest.raises(InvalidChannelConfig, match="'d' in the stream of 'c'"):
        admission.check_update(channel(sequence=5).model_copy(update={"channel": "d"}))
    with pytest.raises(InvalidChannelConfig, match="start_offset"):
        admission.check_update(channel(sequence=5, start_offset=1))


@pytest.mark.parametrize(
    ("config", "may"),
    [
        (channel(), {"", "ann", "bob", "eve"}),
        (channel(writers=(ANN.identity,)), {"ann"}),
        (channel(administrators=(BOB.identity,)), {"bob"}),
        (channel(writers=(ANN.identity,), administrators=(BOB.identity,)), {"bob"}),
    ],
)
def test_who_may_change_the_configuration(config: object, may: set[str]) -> None:
    assert isinstance(config, type(channel()))
    admission = ChannelPolicy(config)
    update = channel(sequence=1)
    for signer in (None, ANN, BOB, EVE):
        message = configuration(update, signer)
        if ("" if signer is None else signer.name) in may:
            admission.check_update_message(message, update)
        else:
            with pytest.raises(InvalidSignature):
                admission.check_update_message(message, update)


def test_a_signed_value_is_no_signed_configuration() -> None:
    """The kind is under the signature."""
    update = channel(sequence=1)
    plain = signed(Message(None, update.encode()), "c", ANN)
    stolen = plain._replace(headers=configuration(update).headers + plain.headers)
    with pytest.raises(InvalidRequest, match="not that of 'ann'"):
        CLOSED.check_update_message(stolen, update)
