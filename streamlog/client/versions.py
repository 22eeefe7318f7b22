"""Which version of each API both sides speak."""

from collections.abc import Mapping
from typing import Any

from streamlog.wire.registry import Api


def agreed_versions(answer: Mapping[str, Any], spoken: Mapping[int, Api]) -> dict[int, int]:
    """The highest that both speak, by API key, out of a node's answer to ApiVersions.

    An API without a common version is left out.
    """
    theirs = {entry["api_key"]: entry for entry in answer["api_keys"]}
    return {
        key: min(api.version_max, theirs[key]["max_version"])
        for key, api in spoken.items()
        if key in theirs
        and theirs[key]["min_version"] <= api.version_max
        and theirs[key]["max_version"] >= api.version_min
    }
