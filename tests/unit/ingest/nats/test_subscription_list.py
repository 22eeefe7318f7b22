from streamlog.ingest.frames import FrameParser, RecordCollector
from streamlog.ingest.nats.subscription_list import (
    Subscription,
    Subscriptions,
    unsubscribe_commands,
)


def test_commands_and_sids() -> None:
    subscriptions, inflow = Subscriptions(), RecordCollector(message_bytes_max=10)
    one = subscriptions.add(Subscription("a.>", inflow))
    two = subscriptions.add(Subscription("b", inflow, queue="group"))
    assert subscriptions.commands([one, two]) == b"SUB a.> 1\r\nSUB b group 2\r\n"
    assert unsubscribe_commands([one, two]) == b"UNSUB 1\r\nUNSUB 2\r\n"
    subscriptions.remove(one)
    assert subscriptions.sids() == [two]
    assert subscriptions.add(Subscription("a", inflow)) == 3


def test_bind() -> None:
    subscriptions, parser = Subscriptions(), FrameParser()
    inflow = RecordCollector(message_bytes_max=10)
    sid = subscriptions.add(Subscription("a", inflow))
    subscriptions.bind(parser, [sid])
    assert parser.feed(b"MSG a 1 1\r\nx\r\n") == [inflow]
