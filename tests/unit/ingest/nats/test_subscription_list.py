from streamlog.ingest.frames import IngestEndpoint, RecordCollector
from streamlog.ingest.nats.subscription_list import Subscriptions, unsubscribe_commands
from streamlog.nats.router import Router


def test_commands_and_sids() -> None:
    subscriptions, inflow = Subscriptions(), RecordCollector(message_bytes_max=10)
    endpoint = IngestEndpoint(Router())
    one = subscriptions.add(endpoint.subscribe(b"a.>", inflow))
    two = subscriptions.add(endpoint.subscribe(b"b", inflow, queue=b"group"))
    assert subscriptions.commands([one, two]) == b"SUB a.> 1\r\nSUB b group 2\r\n"
    assert unsubscribe_commands([one, two]) == b"UNSUB 1\r\nUNSUB 2\r\n"
    subscriptions.remove(one)
    assert subscriptions.sids() == [two]
    assert subscriptions.add(endpoint.subscribe(b"a", inflow)) == 3
