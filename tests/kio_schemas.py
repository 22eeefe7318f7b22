"""The codecs of kio's schema classes, as ``schemas.json`` would have them."""

from functools import cache
from typing import Any

from streamlog.wire.schema_codec import Entity, SchemaTable
from tools.kafka_schemas import StructList


@cache
def codec_of(schema: type[Any]) -> Entity:
    structs = StructList()
    place = structs.place_of(schema)
    return SchemaTable({"structs": structs.structs, "requests": {}, "responses": {}}).entity(place)
