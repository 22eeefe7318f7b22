from typing import Any

from streamlog.cli.ledger.options import AtNode, ChannelName, ask
from streamlog.cli.options import options as o
from streamlog.cli.output import print_json, print_pairs


def info(
    channel: ChannelName,
    node: AtNode = "",
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    as_json: o.Json = False,
) -> None:
    """A channel as an ordering node knows it: its height, its configuration, what is wrong."""
    found = ask(nats, creds, lambda client: client.info(channel, node=node))
    if as_json:
        print_json(found)
        return
    config: dict[str, Any] = found["config"] or {}
    limits = config.get("limits", {})
    print_pairs(
        [
            ("Channel", found["channel"]),
            ("Stream", found["stream"]),
            ("Node", f"{found['node']} ({found['role']})"),
            ("Height", found["height"]),
            ("Tip", found["tip"]),
            ("Next offset", found["next_offset"]),
            ("High watermark", found["high_watermark"]),
            ("Pending records", found["pending"]),
            ("Configuration", config.get("sequence")),
            *((name.replace("_", " ").capitalize(), value) for name, value in limits.items()),
            *(
                (role.capitalize(), [each["name"] for each in config.get(role, ())] or "everybody")
                for role in ("administrators", "writers", "readers", "consenters")
            ),
            ("Problem", found["problem"]),
        ]
    )
